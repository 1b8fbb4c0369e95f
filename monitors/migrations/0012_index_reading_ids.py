from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

import core.db


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('monitors', '0011_dependencies'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS monitor_reading_id', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitor',
            index=models.Index(core.db.Derived('public_id'), name='monitor_reading_id'),
        ),
    ]
