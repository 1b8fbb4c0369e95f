import django.contrib.postgres.indexes
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the index is built without stopping writers

    dependencies = [
        ('monitors', '0009_tags'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS monitor_tags', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='monitor',
            index=django.contrib.postgres.indexes.GinIndex(condition=models.Q(('tag_keys__isnull', False)), fields=['tag_keys'], name='monitor_tags', opclasses=['jsonb_path_ops']),
        ),
    ]
