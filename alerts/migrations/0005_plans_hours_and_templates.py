import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('alerts', '0004_monitor_tags'),
        ('incidents', '0004_monitor_tags'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='alertchannel',
            name='delay_min',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='alertchannel',
            name='hours',
            field=models.JSONField(db_default=[], default=list, help_text='As in the API (`core.hours`); empty: always.'),
        ),
        migrations.AddField(
            model_name='alertchannel',
            name='outside',
            field=models.CharField(choices=[('hold', 'Hold'), ('drop', 'Drop')], db_default='hold', default='hold', max_length=4),
        ),
        migrations.AddField(
            model_name='alertchannel',
            name='templates',
            field=models.JSONField(db_default={}, default=dict, help_text='Liquid: {down?, recovered?}.'),
        ),
        migrations.AddField(
            model_name='alertchannel',
            name='time_zone',
            field=models.CharField(db_default='UTC', default='UTC', help_text='Of the hours.', max_length=64),
        ),
        migrations.AddField(
            model_name='deliveryitem',
            name='due_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='deliveryitem',
            name='user',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        # Only the choices change. Its ALTER COLUMN would lock the table.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name='alertchannel',
                    name='topics',
                    field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('down', 'Down'), ('recovered', 'Recovered'), ('slow', 'Slow'), ('expiry', 'Expiry'), ('reminder', 'Reminder'), ('dns_change', 'Dns Change'), ('too_often', 'Too Often'), ('partial_outage', 'Partial Outage'), ('location_offline', 'Location Offline'), ('on_call_gap', 'On Call Gap'), ('on_call', 'On Call')], max_length=20), size=None),
                ),
            ],
        ),
        migrations.AlterField(
            model_name='deliveryitem',
            name='delivery',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='alerts.delivery'),
        ),
        # Undone first: what is only planned has no delivery.
        migrations.RunSQL(migrations.RunSQL.noop, 'DELETE FROM alerts_deliveryitem WHERE delivery_id IS NULL'),
    ]
