from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


_SUBSCRIBE = """
    UPDATE alerts_alertchannel SET topics = topics || '{on_call_gap}'
     WHERE 'down' = ANY(topics) AND NOT 'on_call_gap' = ANY(topics)
"""
_FORGET = """
    UPDATE alerts_alertchannel
       SET topics = array_remove(array_remove(topics, 'on_call_gap'), 'on_call')
     WHERE topics && '{on_call_gap,on_call}'
"""


class Migration(migrations.Migration):

    atomic = False  # indexes are built, and channels changed, without stopping writers

    dependencies = [
        ('alerts', '0005_plans_hours_and_templates'),
    ]

    operations = [
        # A default of new channels, and of those before.
        migrations.RunSQL(_SUBSCRIBE, _FORGET),
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
