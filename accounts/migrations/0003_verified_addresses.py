from django.db import migrations


def vouch(apps, schema_editor):
    """Accounts from before there was a sign-up were made by staff, who vouch for their addresses."""
    user = apps.get_model("accounts", "User")
    address = apps.get_model("account", "EmailAddress")
    address.objects.bulk_create(
        (
            address(user_id=pk, email=email, primary=True, verified=True)
            for pk, email in user.objects.values_list("pk", "email").iterator(2000)
        ),
        batch_size=2000,
        ignore_conflicts=True,
    )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_plans"), ("account", "0009_emailaddress_unique_primary_email")]

    # Backwards the rows go with their table.
    operations = [migrations.RunPython(vouch, migrations.RunPython.noop)]
