from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_locations'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='staff_from_groups',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='Staff as long as in a group of OIDC_STAFF_GROUPS.'),
        ),
    ]
