from django.db import migrations, models
from django.db.models import F


def verify(apps, schema_editor):
    """Count existing domains as verified: they are served today, and each was unique, so nothing decides again who
    may have it. Their owners cannot know of a record yet, and their pages must not disappear by an upgrade.
    """
    pages = apps.get_model("statuspages", "StatusPage").objects
    pages.filter(custom_domain__isnull=False).update(domain_verified_at=F("created_at"))


def forget_unverified(apps, schema_editor):
    """Make domains unique again, which the version before requires."""
    pages = apps.get_model("statuspages", "StatusPage").objects
    pages.filter(custom_domain__isnull=False, domain_verified_at=None).update(custom_domain=None)


class Migration(migrations.Migration):
    dependencies = [("statuspages", "0001_initial")]

    operations = [
        migrations.AddField(
            "statuspage",
            "domain_verified_at",
            models.DateTimeField(null=True, editable=False, help_text="Else the domain is not served."),
        ),
        migrations.AddField(
            "statuspage",
            "domain_check_at",
            models.DateTimeField(
                null=True, editable=False, help_text="Next look-up of its TXT record."
            ),
        ),
        migrations.AddField(
            "statuspage", "domain_failures", models.SmallIntegerField(default=0, db_default=0, editable=False)
        ),
        migrations.RunPython(verify, migrations.RunPython.noop),
        migrations.AlterField("statuspage", "custom_domain", models.CharField(max_length=253, null=True)),
        migrations.RunPython(migrations.RunPython.noop, forget_unverified),
        migrations.AddConstraint(
            "statuspage",
            models.UniqueConstraint(
                fields=["custom_domain"],
                condition=models.Q(domain_verified_at__isnull=False),
                name="verified_domain_of_one_page",
            ),
        ),
        migrations.AddIndex(
            "statuspage",
            models.Index(
                fields=["domain_check_at"],
                name="page_domain_due",
                condition=models.Q(domain_check_at__isnull=False),
            ),
        ),
    ]
