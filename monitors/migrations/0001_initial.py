import core.ids
import core.crypto
import django.contrib.postgres.fields
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

# `checks.results.partitions` adds and drops partitions later. Sessions cache some ids, which need not be in order.
PINGS = """
CREATE SEQUENCE monitors_ping_id_seq CACHE 100;
CREATE TABLE monitors_ping (
    id bigint NOT NULL DEFAULT nextval('monitors_ping_id_seq'),
    monitor_id bigint NOT NULL,
    at timestamptz NOT NULL,
    duration_ms bigint,
    exit_status smallint,
    body_dropped boolean NOT NULL DEFAULT false,
    kind varchar(7) NOT NULL,
    method varchar(4) NOT NULL,
    rid uuid,
    remote_addr inet,
    user_agent text NOT NULL,
    body text
) PARTITION BY RANGE (at);
CREATE TABLE monitors_ping_default PARTITION OF monitors_ping DEFAULT;
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day date;
BEGIN
    FOR day IN SELECT today + ahead FROM generate_series(-1, 7) AS ahead
    LOOP
        EXECUTE format(
            'CREATE TABLE monitors_ping_p%s PARTITION OF monitors_ping FOR VALUES FROM (%L) TO (%L)',
            to_char(day, 'YYYYMMDD'), day || ' 00:00+00', (day + 1) || ' 00:00+00');
    END LOOP;
END $$;
"""
DROP_PINGS = """
DROP TABLE monitors_ping;
DROP SEQUENCE monitors_ping_id_seq;
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
                ('owned_since', models.DateTimeField(help_text='When it moved to this owner; null if it never moved.', null=True)),
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
            name='PingGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField()),
                ('held_until', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_index=True, null=True)),
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
                ('fault', models.TextField(help_text='Why the last check was not made; null once a check ended.', null=True)),
                ('fault_since', models.DateTimeField(help_text='The first slot that was not checked since the last check.', null=True)),
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
                ('last_ping_at', models.DateTimeField(help_text='Heartbeats: the last success.', null=True)),
                ('runs', models.JSONField(null=True)),
                ('run_started_at', models.DateTimeField(null=True)),
                ('last_duration_ms', models.BigIntegerField(help_text='Heartbeats: the last run that was started.', null=True)),
                ('bodies_since', models.DateTimeField(help_text='Heartbeats: start of the hour of `body_bytes`.', null=True)),
                ('body_bytes', models.IntegerField(help_text='Heartbeats: the size of the bodies kept in that hour.', null=True)),
                ('cert_expires_at', models.DateTimeField(null=True)),
                ('domain_expires_at', models.DateTimeField(null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('next_due_at__isnull', False)), fields=['next_due_at'], name='state_due'), models.Index(condition=models.Q(('fault_since__isnull', False)), fields=['fault_since'], name='state_fault')],
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
            name='DnsAnswer',
            fields=[
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='dns_answer', serialize=False, to='monitors.monitor')),
                ('owner_id', models.BigIntegerField()),
                ('config_version', models.IntegerField()),
                ('since', models.DateTimeField()),
                ('records', models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name='DnsChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('added', models.JSONField()),
                ('removed', models.JSONField()),
                ('added_count', models.IntegerField()),
                ('removed_count', models.IntegerField()),
                ('monitor', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='dns_changes', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(fields=['monitor', 'at', 'id'], name='dns_change_history')],
            },
        ),
        migrations.CreateModel(
            name='DnsAlert',
            fields=[
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='dns_alert', serialize=False, to='monitors.monitor')),
                ('records', models.JSONField()),
                ('due_at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='PingExcess',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('allowed', models.IntegerField()),
                ('processed_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='ping_excesses', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(fields=['monitor', 'at'], name='ping_excess_history'), models.Index(condition=models.Q(('processed_at', None)), fields=['id'], name='ping_excess_outbox')],
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
            name='ScheduleSlots',
            fields=[
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='slots', serialize=False, to='monitors.monitor')),
                ('schedule', models.CharField(max_length=100)),
                ('timezone', models.CharField(max_length=64)),
                ('tzdata', models.CharField(max_length=20)),
                ('since', models.DateTimeField()),
                ('times', django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(), size=None)),
            ],
        ),
        migrations.CreateModel(
            name='StatusChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('status', 'Status'), ('paused', 'Paused'), ('resumed', 'Resumed'), ('stale', 'Stale'), ('checked', 'Checked')], default='status', max_length=7)),
                ('at', models.DateTimeField()),
                ('before', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4, null=True)),
                ('after', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4, null=True)),
                ('claim', models.BigIntegerField(help_text='The result that brought it about.', null=True)),
                ('failing_since', models.DateTimeField(help_text='Down: the first failure of the run.', null=True)),
                ('reason_code', models.CharField(choices=[('timeout', 'timeout'), ('dns_failure', 'dns_failure'), ('connection_failure', 'connection_failure'), ('tls_failure', 'tls_failure'), ('http_failure', 'http_failure'), ('content_failure', 'content_failure'), ('partial_response', 'partial_response'), ('redirect_failure', 'redirect_failure'), ('blocked_target', 'blocked_target'), ('heartbeat_missed', 'heartbeat_missed'), ('heartbeat_failed', 'heartbeat_failed'), ('worker_lost', 'worker_lost')], max_length=20, null=True)),
                ('detail', models.TextField(null=True)),
                ('processed_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='monitors.monitor')),
            ],
            options={
                'indexes': [models.Index(fields=['monitor', 'at'], name='change_history'), models.Index(condition=models.Q(('processed_at', None)), fields=['id'], name='change_outbox')],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(PINGS, DROP_PINGS)],
            state_operations=[
                migrations.CreateModel(
                    name='Ping',
                    fields=[
                        ('pk', models.CompositePrimaryKey('monitor_id', 'at', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('id', models.BigIntegerField()),
                        ('monitor_id', models.BigIntegerField()),
                        ('at', models.DateTimeField()),
                        ('duration_ms', models.BigIntegerField(help_text='Of the run that it ends.', null=True)),
                        ('exit_status', models.SmallIntegerField(null=True)),
                        ('body_dropped', models.BooleanField(default=False, help_text='The heartbeat had too many bodies in that hour.')),
                        ('kind', models.CharField(choices=[('success', 'Success'), ('start', 'Start'), ('fail', 'Fail'), ('log', 'Log')], max_length=7)),
                        ('method', models.CharField(max_length=4)),
                        ('rid', models.UUIDField(null=True)),
                        ('remote_addr', models.GenericIPAddressField(null=True)),
                        ('user_agent', models.TextField()),
                        ('body', models.TextField(null=True)),
                    ],
                ),
            ],
        ),
        migrations.AddIndex(
            model_name='ping',
            index=models.Index(fields=['monitor_id', 'at'], name='ping_history'),
        ),
        migrations.AddIndex(
            model_name='ping',
            index=models.Index(condition=models.Q(('rid__isnull', False)), fields=['monitor_id', 'rid', 'at'], name='ping_runs'),
        ),
        migrations.RunSQL(CREATE_TRIGGER, DROP_TRIGGER),
    ]
