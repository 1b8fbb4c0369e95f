from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0003_staff_from_groups'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='deletion_began_at',
            field=models.DateTimeField(editable=False, help_text='Since when the account and its rows are being deleted.', null=True),
        ),
    ]
