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
    ]
