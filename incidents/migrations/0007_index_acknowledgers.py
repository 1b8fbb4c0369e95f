from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('incidents', '0006_escalation_policy'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS incident_acknowledger', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='incident',
            index=models.Index(condition=models.Q(('acknowledged_by__isnull', False)), fields=['acknowledged_by'], name='incident_acknowledger'),
        ),
    ]
