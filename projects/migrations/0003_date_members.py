from django.db import migrations, models


def date_existing_rows(apps, schema_editor):
    """Until now only a project's creation made a membership."""
    project = apps.get_model("projects", "Project")
    apps.get_model("projects", "Membership").objects.update(
        created_at=models.Subquery(
            project.objects.filter(pk=models.OuterRef("project")).values("created_at")[:1]
        )
    )


def forget_invitations(apps, schema_editor):
    """Backwards: the older code knows no membership without a user."""
    apps.get_model("projects", "Membership").objects.filter(user=None).delete()


class Migration(migrations.Migration):
    # Apart from the migration before: PostgreSQL makes no index on a table with rows changed in the same transaction.
    dependencies = [("projects", "0002_members")]

    operations = [migrations.RunPython(date_existing_rows, forget_invitations)]
