from django.db import migrations

PLANS = [("free", 300, 50), ("pro", 60, 1_000)]


def create_plans(apps, schema_editor):
    plan = apps.get_model("accounts", "Plan")
    for name, min_interval_sec, monitor_limit in PLANS:
        plan.objects.get_or_create(
            name=name, defaults={"min_interval_sec": min_interval_sec, "monitor_limit": monitor_limit}
        )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    # Backwards the rows go with their table; deleting them here would fail on the accounts that use them.
    operations = [migrations.RunPython(create_plans, migrations.RunPython.noop)]
