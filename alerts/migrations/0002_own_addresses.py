import json

from django.db import migrations

from core.crypto import seal

TOPICS = ["down", "recovered", "expiry", "reminder"]


def add_own_addresses(apps, schema_editor):
    """Accounts from before there were channels get their e-mail address as one, as new accounts do."""
    User = apps.get_model("accounts", "User")
    AlertChannel = apps.get_model("alerts", "AlertChannel")
    without = User.objects.filter(alert_channels=None).values_list("pk", "email", "created_at")
    batch = []
    for pk, email, created_at in without.iterator(chunk_size=1000):
        local, _, domain = email.rpartition("@")
        batch.append(
            AlertChannel(
                owner_id=pk,
                created_at=created_at,
                confirmed_at=created_at,
                name="E-mail",
                kind="email",
                sealed_config=seal(json.dumps({"address": email})),
                hint=f"{local[:1]}…@{domain}"[:200],
                topics=TOPICS,
            )
        )
        if len(batch) == 1000:
            AlertChannel.objects.bulk_create(batch)
            batch = []
    AlertChannel.objects.bulk_create(batch)


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial")]

    # Backwards the rows go with their table.
    operations = [migrations.RunPython(add_own_addresses, migrations.RunPython.noop)]
