import django.contrib.postgres.indexes
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the indexes are built without stopping writers

    dependencies = [
        ('monitors', '0006_locations'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS monitor_locations', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitor',
            index=django.contrib.postgres.indexes.GinIndex(condition=models.Q(('locations__isnull', False)), fields=['locations'], name='monitor_locations'),
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS state_agent', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitorstate',
            index=models.Index(condition=models.Q(('agent_id__isnull', False), ('claimed_at__isnull', False)), fields=['agent_id'], name='state_agent'),
        ),
    ]
