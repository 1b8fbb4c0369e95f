import core.ids
import core.crypto
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# What ON DELETE CASCADE would do to results and roll-ups if they were not too many for one transaction.
CREATE_TRIGGER = """
CREATE FUNCTION note_deleted_monitor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO checks_deletedmonitor (monitor_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER note_deleted AFTER DELETE ON monitors_monitor
    FOR EACH ROW EXECUTE FUNCTION note_deleted_monitor();
"""
DROP_TRIGGER = """
DROP TRIGGER note_deleted ON monitors_monitor;
DROP FUNCTION note_deleted_monitor();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('checks', '0001_initial'),
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DomainRegistration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='ASCII, in lower case.', max_length=253, unique=True)),
                ('expires_at', models.DateTimeField(null=True)),
                ('looked_up_at', models.DateTimeField(help_text='The last successful lookup.', null=True)),
                ('next_lookup_at', models.DateTimeField(db_index=True)),
                ('failures', models.IntegerField(default=0, help_text='Lookups that failed since then.')),
                ('error', models.TextField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Monitor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.monitor_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('enabled', models.BooleanField(default=True)),
                ('muted_until', models.DateTimeField(null=True)),
                ('config_version', models.IntegerField(default=1, help_text='Raised by every change of what is probed: older results no longer move the state.')),
                ('type', models.CharField(max_length=10)),
                ('name', models.CharField(max_length=200)),
                ('url', models.TextField()),
                ('interval_sec', models.IntegerField()),
                ('slow_ms', models.IntegerField()),
                ('timeout_ms', models.IntegerField()),
                ('check_ssl', models.BooleanField()),
                ('check_domain', models.BooleanField()),
                ('config', models.JSONField(help_text='The settings of the type, as its struct in monitors.types says.')),
                ('header_values', core.crypto.EncryptedField(help_text='In the order of request_headers.', null=True)),
                ('fail_threshold', models.IntegerField()),
                ('recover_threshold', models.IntegerField()),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='monitors', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='monitors', to='projects.project')),
                ('registration', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='monitors', to='monitors.domainregistration')),
            ],
        ),
        migrations.CreateModel(
            name='SchedulerGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='SchedulerTick',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='UptimeProgress',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('written_until', models.DateField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='MonitorState',
            fields=[
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='state', serialize=False, to='monitors.monitor')),
                ('next_due_at', models.DateTimeField(null=True)),
                ('slot_at', models.DateTimeField(null=True)),
                ('claim', models.BigIntegerField(default=0)),
                ('claimed_at', models.DateTimeField(null=True)),
                ('applied_claim', models.BigIntegerField(default=0)),
                ('started_slot', models.DateTimeField(help_text='Schedulers: the last slot that was fired.', null=True)),
                ('armed_at', models.DateTimeField(help_text='Heartbeats: a later start of the watch.', null=True)),
                ('status', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4, null=True)),
                ('status_since', models.DateTimeField(null=True)),
                ('fresh', models.BooleanField(default=True)),
                ('failures', models.IntegerField(default=0)),
                ('passes', models.IntegerField(default=0)),
                ('failing_since', models.DateTimeField(null=True)),
                ('last_checked_at', models.DateTimeField(null=True)),
                ('last_latency_ms', models.IntegerField(null=True)),
                ('last_connect_ms', models.IntegerField(null=True)),
                ('last_ttfb_ms', models.IntegerField(null=True)),
                ('last_ping_at', models.DateTimeField(null=True)),
                ('cert_expires_at', models.DateTimeField(null=True)),
                ('domain_expires_at', models.DateTimeField(null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('next_due_at__isnull', False)), fields=['next_due_at'], name='state_due')],
            },
        ),
        migrations.CreateModel(
            name='MaintenanceSpan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_index=True)),
                ('monitor', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitors.monitor')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('monitor', 'started_at'), name='maintenance_span_once')],
            },
        ),
        migrations.CreateModel(
            name='ExpiryWarning',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(choices=[('certificate', 'Certificate'), ('domain', 'Domain')], max_length=11)),
                ('expires_at', models.DateTimeField()),
                ('threshold_days', models.SmallIntegerField()),
                ('at', models.DateTimeField()),
                ('processed_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='expiry_warnings', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('processed_at', None)), fields=['id'], name='expiry_outbox')],
                'constraints': [models.UniqueConstraint(fields=('monitor', 'subject', 'expires_at', 'threshold_days'), name='expiry_warning_once')],
            },
        ),
        migrations.CreateModel(
            name='DailyUptime',
            fields=[
                ('pk', models.CompositePrimaryKey('monitor_id', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('observed_ms', models.IntegerField()),
                ('down_ms', models.IntegerField()),
                ('outages', models.IntegerField()),
                ('monitor', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(fields=['day'], name='uptime_day')],
            },
        ),
        migrations.CreateModel(
            name='StatusChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('status', 'Status'), ('paused', 'Paused'), ('resumed', 'Resumed')], default='status', max_length=7)),
                ('at', models.DateTimeField()),
                ('before', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4, null=True)),
                ('after', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4, null=True)),
                ('claim', models.BigIntegerField(help_text='The result that brought it about.', null=True)),
                ('failing_since', models.DateTimeField(help_text='Down: the first failure of the run.', null=True)),
                ('reason_code', models.CharField(choices=[('timeout', 'timeout'), ('dns_failure', 'dns_failure'), ('connection_failure', 'connection_failure'), ('tls_failure', 'tls_failure'), ('http_failure', 'http_failure'), ('content_failure', 'content_failure'), ('partial_response', 'partial_response'), ('redirect_failure', 'redirect_failure'), ('blocked_target', 'blocked_target'), ('heartbeat_missed', 'heartbeat_missed'), ('worker_lost', 'worker_lost')], max_length=20, null=True)),
                ('detail', models.TextField(null=True)),
                ('processed_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(fields=['monitor', 'at'], name='change_history'), models.Index(condition=models.Q(('processed_at', None)), fields=['id'], name='change_outbox')],
            },
        ),
        migrations.RunSQL(CREATE_TRIGGER, DROP_TRIGGER),
    ]
