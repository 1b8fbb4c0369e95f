import django.core.validators
from django.db import migrations, models

MOST = 2_147_483_647  # what the column holds


def create_local_plan(apps, schema_editor):
    apps.get_model("accounts", "Plan").objects.get_or_create(
        name="local", defaults={"min_interval_sec": 10, "default_interval_sec": 60, "monitor_limit": None}
    )


def limit_all_plans(apps, schema_editor):
    """Keep the rows, which accounts may use; the version before knows no plan without a limit."""
    apps.get_model("accounts", "Plan").objects.filter(monitor_limit=None).update(monitor_limit=MOST)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_social_accounts")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="default_interval_sec",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Seconds; the interval of monitors that name none. Empty: the shortest.",
                null=True,
                validators=[django.core.validators.MinValueValidator(1)],
            ),
        ),
        migrations.AlterField(
            model_name="plan",
            name="monitor_limit",
            field=models.PositiveIntegerField(
                blank=True, help_text="How many monitors an account may own. Empty: no limit.", null=True
            ),
        ),
        migrations.RunPython(create_local_plan, limit_all_plans),
    ]
