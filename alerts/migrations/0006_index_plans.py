from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False  # the indexes are built without stopping writers

    dependencies = [
        ('alerts', '0005_plans_hours_and_templates'),
    ]

    operations = [
        # An interrupted build leaves an invalid index.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS item_due', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='deliveryitem',
            index=models.Index(condition=models.Q(('delivery', None)), fields=['due_at'], name='item_due'),
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS item_person', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='deliveryitem',
            index=models.Index(condition=models.Q(('user__isnull', False)), fields=['user'], name='item_person'),
        ),
    ]
