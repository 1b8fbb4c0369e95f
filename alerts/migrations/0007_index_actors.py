from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.lookups import IsNull


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('alerts', '0006_index_plans'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS item_actor', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='deliveryitem',
            index=models.Index(KeyTextTransform('by', 'payload'), condition=models.Q(IsNull(KeyTextTransform('by', 'payload'), False)), name='item_actor'),
        ),
    ]
