from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

_SUBSCRIBE = """
    UPDATE alerts_alertchannel SET topics = topics || '{location_offline}'
     WHERE 'down' = ANY(topics) AND NOT 'location_offline' = ANY(topics)
"""
_FORGET = """
    UPDATE alerts_alertchannel
       SET topics = array_remove(array_remove(topics, 'location_offline'), 'partial_outage')
     WHERE topics && '{location_offline,partial_outage}'
"""


class Migration(migrations.Migration):
    dependencies = [("alerts", "0002_turns")]

    operations = [
        migrations.AlterField(
            model_name="alertchannel",
            name="topics",
            field=ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("down", "Down"),
                        ("recovered", "Recovered"),
                        ("slow", "Slow"),
                        ("expiry", "Expiry"),
                        ("reminder", "Reminder"),
                        ("dns_change", "Dns Change"),
                        ("too_often", "Too Often"),
                        ("partial_outage", "Partial Outage"),
                        ("location_offline", "Location Offline"),
                    ],
                    max_length=20,
                ),
                size=None,
            ),
        ),
        # A default of new channels, and of those before.
        migrations.RunSQL(_SUBSCRIBE, _FORGET),
    ]
