import core.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('monitors', '0001_initial'),
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.incident_id, editable=False, max_length=40, unique=True)),
                ('monitor_public_id', models.CharField(default='', help_text='Kept when the monitor is deleted.', max_length=40)),
                ('name', models.CharField(help_text="The monitor's name at that time, or the title.", max_length=200)),
                ('reason_code', models.CharField(choices=[('timeout', 'timeout'), ('dns_failure', 'dns_failure'), ('connection_failure', 'connection_failure'), ('tls_failure', 'tls_failure'), ('http_failure', 'http_failure'), ('content_failure', 'content_failure'), ('partial_response', 'partial_response'), ('redirect_failure', 'redirect_failure'), ('blocked_target', 'blocked_target'), ('heartbeat_missed', 'heartbeat_missed'), ('heartbeat_failed', 'heartbeat_failed'), ('worker_lost', 'worker_lost')], max_length=20, null=True)),
                ('detail', models.TextField(null=True)),
                ('claim', models.BigIntegerField(help_text='The check that confirmed it.', null=True)),
                ('evidence', models.JSONField(help_text='What that check saw. Kept longer than its result.', null=True)),
                ('started_at', models.DateTimeField(help_text='The first of the consecutive failures.')),
                ('confirmed_at', models.DateTimeField(null=True)),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('resolved_at', models.DateTimeField(null=True)),
                ('resolution', models.CharField(choices=[('recovered', 'Recovered'), ('paused', 'Paused'), ('deleted', 'Deleted'), ('closed', 'Closed')], max_length=9, null=True)),
                ('announced_at', models.DateTimeField(help_text='When the outage was announced.', null=True)),
                ('acknowledgement_announced_at', models.DateTimeField(null=True)),
                ('closing_announced_at', models.DateTimeField(help_text='When the recovery was announced.', null=True)),
                ('quiet', models.CharField(choices=[('muted', 'Muted'), ('maintenance', 'Maintenance'), ('flapping', 'Flapping')], help_text='Why the last notification was suppressed.', max_length=11, null=True)),
                ('look_again_at', models.DateTimeField(help_text='When to check again whether to notify.', null=True)),
                ('monitor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='incidents', to='monitors.monitor')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='incidents', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='IncidentEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.incident_event_id, editable=False, max_length=40, unique=True)),
                ('type', models.CharField(choices=[('first_failure', 'First Failure'), ('confirmed', 'Confirmed'), ('reason_changed', 'Reason Changed'), ('announced', 'Announced'), ('alert_sent', 'Alert Sent'), ('alert_failed', 'Alert Failed'), ('suppressed', 'Suppressed'), ('acknowledged', 'Acknowledged'), ('commented', 'Commented'), ('declared', 'Declared'), ('resolved', 'Resolved'), ('too_often', 'Too Often')], max_length=14)),
                ('at', models.DateTimeField()),
                ('text', models.TextField()),
                ('data', models.JSONField(default=dict)),
                ('incident', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='incidents.incident')),
            ],
        ),
        migrations.CreateModel(
            name='MaintenanceWindow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.window_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(max_length=200)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('time_zone', models.CharField(default='UTC', max_length=64)),
                ('rrule', models.CharField(default='', help_text='RFC 5545, without DTSTART; empty: once.', max_length=500)),
                ('all_monitors', models.BooleanField(help_text='All monitors of the project or owner, otherwise the chosen ones.')),
                ('current_starts_at', models.DateTimeField(null=True)),
                ('current_ends_at', models.DateTimeField(null=True)),
                ('previous_ends_at', models.DateTimeField(null=True)),
                ('monitors', models.ManyToManyField(related_name='maintenance_windows', to='monitors.monitor')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maintenance_windows', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='FlappingSpell',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField()),
                ('last_change_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='flapping_spells', to='monitors.monitor')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('monitor',), name='one_flapping_spell_per_monitor')],
            },
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['monitor', 'started_at'], name='incidents_of_monitor'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('resolved_at', None)), fields=['id'], name='incident_open'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('announced_at__isnull', False), ('closing_announced_at', None), ('resolved_at__isnull', False)), fields=['id'], name='incident_closing_due'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('announced_at', None), ('monitor__isnull', False), ('quiet', None), ('resolved_at__isnull', False)), fields=['id'], name='incident_passed'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('resolved_at', None)), fields=('monitor',), name='one_open_incident_per_monitor'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolution', None), ('resolved_at', None)), models.Q(('resolution__isnull', False), ('resolved_at__isnull', False)), _connector='OR'), name='incident_resolved_somehow'),
        ),
        migrations.AddIndex(
            model_name='maintenancewindow',
            index=models.Index(condition=models.Q(('current_ends_at__isnull', False)), fields=['current_ends_at'], name='window_current'),
        ),
    ]
