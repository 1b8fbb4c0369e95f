from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0003_index_effects'),
    ]

    operations = [
        migrations.AddField(
            model_name='maintenancewindow',
            name='monitor_tag_keys',
            field=models.JSONField(editable=False, help_text='The tags as `monitors.types.tags.tag_key` returns them.', null=True),
        ),
        migrations.AddField(
            model_name='maintenancewindow',
            name='monitor_tags',
            field=models.JSONField(null=True),
        ),
    ]
