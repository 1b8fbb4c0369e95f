from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('monitors', '0015_escalation_policy'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS monitor_policy', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitor',
            index=models.Index(condition=models.Q(('escalation_policy__isnull', False)), fields=['escalation_policy'], name='monitor_policy'),
        ),
    ]
