from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping senders

    dependencies = [
        ('alerts', '0007_index_actors'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS delivery_turns', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='delivery',
            index=models.Index(condition=models.Q(models.Q(('state__in', ['sent', 'dead', 'failed']), _negated=True), ('behind', [])), fields=['account', 'next_try_at'], name='delivery_turns'),
        ),
        RemoveIndexConcurrently(
            model_name='delivery',
            name='delivery_ready',
        ),
    ]
