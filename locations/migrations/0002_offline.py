from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("locations", "0001_locations")]

    operations = [
        migrations.AddField(
            model_name="location",
            name="offline_since",
            field=models.DateTimeField(
                editable=False,
                help_text="Private, with monitors: since when no agent is online; null if one is.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="location",
            name="alert_due_at",
            field=models.DateTimeField(
                editable=False, help_text="When to notify that it is offline; null once that is done.", null=True
            ),
        ),
        migrations.AddField(
            model_name="location",
            name="alerted_at",
            field=models.DateTimeField(
                editable=False, help_text="The last notification that it was offline.", null=True
            ),
        ),
    ]
