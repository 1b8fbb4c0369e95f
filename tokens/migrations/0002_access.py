from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tokens', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='projecttoken',
            name='access',
            field=models.CharField(choices=[('write', 'Write'), ('read', 'Read')], db_default='write', default='write', max_length=5),
        ),
    ]
