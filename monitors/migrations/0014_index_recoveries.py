from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('monitors', '0013_bulk_edits'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS change_recoveries', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='statuschange',
            index=models.Index(condition=models.Q(('after__in', ['up', 'slow']), ('before', 'down'), ('kind', 'status')), fields=['monitor', 'at'], name='change_recoveries'),
        ),
    ]
