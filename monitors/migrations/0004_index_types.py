from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('monitors', '0003_uptime_by_status'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS monitor_type', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitor',
            index=models.Index(fields=['type'], name='monitor_type'),
        ),
    ]
