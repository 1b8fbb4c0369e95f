from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0002_signals_and_canary'),
    ]

    operations = [
        migrations.AddField(
            model_name='dailyuptime',
            name='status_down_ms',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='dailyuptime',
            name='status_observed_ms',
            field=models.IntegerField(null=True),
        ),
    ]
