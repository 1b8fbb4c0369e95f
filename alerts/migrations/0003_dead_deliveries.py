from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # nobody who writes waits for the index

    dependencies = [("alerts", "0002_own_addresses")]

    operations = [
        migrations.AlterModelOptions(name="delivery", options={"verbose_name_plural": "deliveries"}),
        AddIndexConcurrently(
            model_name="delivery",
            index=models.Index(condition=models.Q(("state", "dead")), fields=["id"], name="delivery_dead"),
        ),
    ]
