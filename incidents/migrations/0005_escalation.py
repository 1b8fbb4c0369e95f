import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0004_monitor_tags'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Escalation',
            fields=[
                ('incident', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='escalation', serialize=False, to='incidents.incident')),
                ('state', models.CharField(choices=[('running', 'Running'), ('acknowledged', 'Acknowledged'), ('finished', 'Finished')], default='running', max_length=12)),
                ('run', models.IntegerField(default=0)),
                ('round', models.SmallIntegerField(default=0)),
                ('step', models.SmallIntegerField(default=0)),
                ('next_at', models.DateTimeField(null=True)),
                ('reached', models.BooleanField(default=False, help_text='Whether anybody was notified in this run.')),
            ],
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_by',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='incidentevent',
            name='type',
            field=models.CharField(choices=[('first_failure', 'First Failure'), ('confirmed', 'Confirmed'), ('reason_changed', 'Reason Changed'), ('announced', 'Announced'), ('alert_sent', 'Alert Sent'), ('alert_failed', 'Alert Failed'), ('suppressed', 'Suppressed'), ('acknowledged', 'Acknowledged'), ('commented', 'Commented'), ('declared', 'Declared'), ('resolved', 'Resolved'), ('too_often', 'Too Often'), ('escalated', 'Escalated'), ('unacknowledged', 'Unacknowledged')], max_length=14),
        ),
    ]
