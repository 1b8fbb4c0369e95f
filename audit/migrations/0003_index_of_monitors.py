from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('audit', '0002_entries_of_monitors'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='entry',
            index=models.Index(condition=models.Q(('monitor_id__isnull', False)), fields=['monitor_id', 'id'], name='audit_monitor'),
        ),
    ]
