from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0003_dead_deliveries")]

    operations = [
        migrations.AlterField(
            model_name="alertchannel",
            name="kind",
            field=models.CharField(
                choices=[
                    ("email", "Email"),
                    ("webhook", "Webhook"),
                    ("slack", "Slack"),
                    ("discord", "Discord"),
                    ("teams", "Teams"),
                    ("telegram", "Telegram"),
                    ("ntfy", "Ntfy"),
                    ("pushover", "Pushover"),
                    ("pagerduty", "Pagerduty"),
                    ("apprise", "Apprise"),
                ],
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="state",
            field=models.CharField(
                choices=[
                    ("gathering", "Gathering"),
                    ("waiting", "Waiting"),
                    ("sent", "Sent"),
                    ("dead", "Dead"),
                    ("failed", "Failed"),
                ],
                default="waiting",
                max_length=9,
            ),
        ),
    ]
