from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0004_index_types'),
    ]

    operations = [
        migrations.AddField(
            model_name='monitor',
            name='confirmation_sec',
            field=models.IntegerField(null=True),
        ),
    ]
