from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='entry',
            name='monitor_id',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddIndex(
            model_name='entry',
            index=models.Index(condition=models.Q(('monitor_id__isnull', False)), fields=['monitor_id', 'id'], name='audit_monitor'),
        ),
    ]
