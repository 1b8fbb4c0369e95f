from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('projects', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='membership',
            name='from_groups',
            field=models.BooleanField(db_default=False, default=False, help_text='Follows OIDC_PROJECT_ROLES at every sign-in of the member.'),
        ),
    ]
