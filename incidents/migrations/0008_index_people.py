from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.lookups import IsNull


class Migration(migrations.Migration):

    atomic = False  # the indexes are built without stopping writers

    dependencies = [
        ('incidents', '0007_index_acknowledgers'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS event_person', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='incidentevent',
            index=models.Index(KeyTextTransform('by', 'data'), condition=models.Q(IsNull(KeyTextTransform('by', 'data'), False)), name='event_person'),
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS event_people', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='incidentevent',
            index=GinIndex(KeyTransform('people', 'data'), condition=models.Q(('data__has_key', 'people')), name='event_people'),
        ),
    ]
