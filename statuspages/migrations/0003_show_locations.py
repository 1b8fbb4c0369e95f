from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('statuspages', '0002_domain_verification'),
    ]

    operations = [
        migrations.AddField(
            model_name='statuspage',
            name='show_locations',
            field=models.BooleanField(db_default=False, default=False, help_text='Whether the locations of monitors with several are shown.'),
        ),
    ]
