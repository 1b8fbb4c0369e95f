from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checks', '0003_drop_unused_result_times'),
    ]

    operations = [
        migrations.AddField(
            model_name='checkresult',
            name='confirmed',
            field=models.BooleanField(help_text='Of a failure about which other locations answered.', null=True),
        ),
        migrations.AddField(
            model_name='checkresult',
            name='location_id',
            field=models.IntegerField(help_text='Null: the default location.', null=True),
        ),
    ]
