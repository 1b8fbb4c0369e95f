import core.ids
import tokens.models
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tokens", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="public_id",
            field=models.CharField(
                db_default=tokens.models.SessionId(),
                default=core.ids.session_id,
                editable=False,
                max_length=40,
                unique=True,
            ),
        ),
    ]
