from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # nobody who writes waits for the index

    dependencies = [("statuspages", "0001_initial")]

    operations = [
        AddIndexConcurrently(
            model_name="pagemail",
            index=models.Index(condition=models.Q(("state", "dead")), fields=["id"], name="page_mail_dead"),
        ),
    ]
