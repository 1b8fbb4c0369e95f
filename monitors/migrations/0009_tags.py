from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0008_partial_outages'),
    ]

    operations = [
        migrations.AddField(
            model_name='monitor',
            name='tags',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='monitor',
            name='tag_keys',
            field=models.JSONField(editable=False, help_text='The tags as `monitors.types.tags.tag_key` returns them.', null=True),
        ),
    ]
