import checks.results.hours
import django.contrib.postgres.indexes
import django.db.models.functions.datetime
from django.db import migrations, models


# Django makes no partitioned tables. `checks.results.partitions` adds and drops partitions later.
RESULTS = """
CREATE TABLE checks_checkresult (
    monitor_id bigint NOT NULL,
    checked_at timestamptz NOT NULL,
    claim integer NOT NULL,
    latency_ms integer,
    connect_ms integer,
    ttfb_ms integer,
    http_status smallint,
    loss smallint,
    verdict varchar(4) NOT NULL,
    reason_code varchar(20),
    detail text,
    evidence jsonb
) PARTITION BY RANGE (checked_at);
CREATE INDEX result_hours ON checks_checkresult (monitor_id, date_bin('1 hour', checked_at, '2000-01-01 00:00+00'));
CREATE TABLE checks_checkresult_default PARTITION OF checks_checkresult DEFAULT;
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day date;
BEGIN
    FOR day IN SELECT today + ahead FROM generate_series(-1, 7) AS ahead
    LOOP
        EXECUTE format(
            'CREATE TABLE checks_checkresult_p%s PARTITION OF checks_checkresult FOR VALUES FROM (%L) TO (%L)',
            to_char(day, 'YYYYMMDD'), day || ' 00:00+00', (day + 1) || ' 00:00+00');
    END LOOP;
END $$;
"""

ROLLUPS = """
CREATE TABLE checks_hourlyrollup (
    monitor_id bigint NOT NULL,
    hour timestamptz NOT NULL,
    latency_sum bigint NOT NULL,
    up integer NOT NULL,
    slow integer NOT NULL,
    down integer NOT NULL,
    timed integer NOT NULL,
    latency_min integer,
    latency_max integer,
    loss_sum integer,
    measured integer,
    -- The index includes what averages are computed from: ninety days of a monitor are a dozen pages instead of 2,160.
    PRIMARY KEY (monitor_id, hour) INCLUDE (latency_sum, timed)
) PARTITION BY RANGE (hour);
CREATE TABLE checks_hourlyrollup_default PARTITION OF checks_hourlyrollup DEFAULT;
DO $$
DECLARE
    month date;
BEGIN
    FOR month IN
        SELECT DISTINCT date_trunc('month', now() AT TIME ZONE 'UTC' + days * interval '1 day')::date
          FROM generate_series(-1, 7) AS days
    LOOP
        EXECUTE format(
            'CREATE TABLE checks_hourlyrollup_p%s PARTITION OF checks_hourlyrollup FOR VALUES FROM (%L) TO (%L)',
            to_char(month, 'YYYYMM'), month || ' 00:00+00', (month + interval '1 month')::date || ' 00:00+00');
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='DeletedMonitor',
            fields=[
                ('monitor_id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('deleted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(ROLLUPS, "DROP TABLE checks_hourlyrollup")],
            state_operations=[
                migrations.CreateModel(
                    name='HourlyRollup',
                    fields=[
                        ('pk', models.CompositePrimaryKey('monitor_id', 'hour', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('monitor_id', models.BigIntegerField()),
                        ('hour', models.DateTimeField()),
                        ('latency_sum', models.BigIntegerField()),
                        ('up', models.IntegerField()),
                        ('slow', models.IntegerField()),
                        ('down', models.IntegerField()),
                        ('timed', models.IntegerField()),
                        ('latency_min', models.IntegerField(null=True)),
                        ('latency_max', models.IntegerField(null=True)),
                        ('loss_sum', models.IntegerField(null=True)),
                        ('measured', models.IntegerField(null=True)),
                    ],
                ),
            ],
        ),
        migrations.CreateModel(
            name='LateHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('monitor_id', models.BigIntegerField()),
                ('hour', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='RollupProgress',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('closed_until', models.DateTimeField(null=True)),
                ('rolled_until', models.DateTimeField(null=True)),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(RESULTS, "DROP TABLE checks_checkresult")],
            state_operations=[
                migrations.CreateModel(
                    name='CheckResult',
                    fields=[
                        ('pk', models.CompositePrimaryKey('monitor_id', 'checked_at', 'claim', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('monitor_id', models.BigIntegerField()),
                        ('checked_at', models.DateTimeField()),
                        ('claim', models.IntegerField()),
                        ('latency_ms', models.IntegerField(null=True)),
                        ('connect_ms', models.IntegerField(null=True)),
                        ('ttfb_ms', models.IntegerField(null=True)),
                        ('http_status', models.SmallIntegerField(null=True)),
                        ('loss', models.SmallIntegerField(help_text='Percent of packets, of a ping that sent any.', null=True)),
                        ('verdict', models.CharField(choices=[('up', 'up'), ('slow', 'slow'), ('down', 'down')], max_length=4)),
                        ('reason_code', models.CharField(choices=[('timeout', 'timeout'), ('dns_failure', 'dns_failure'), ('connection_failure', 'connection_failure'), ('tls_failure', 'tls_failure'), ('http_failure', 'http_failure'), ('content_failure', 'content_failure'), ('partial_response', 'partial_response'), ('redirect_failure', 'redirect_failure'), ('blocked_target', 'blocked_target'), ('heartbeat_missed', 'heartbeat_missed'), ('heartbeat_failed', 'heartbeat_failed'), ('worker_lost', 'worker_lost')], max_length=20, null=True)),
                        ('detail', models.TextField(null=True)),
                        ('evidence', models.JSONField(help_text='Of a failure: checks.evidence.Evidence, without its Nones.', null=True)),
                    ],
                    options={
                        'indexes': [models.Index(models.F('monitor_id'), checks.results.hours.HourOf('checked_at'), name='result_hours')],
                    },
                ),
            ],
        ),
        migrations.AddIndex(
            model_name='checkresult',
            index=models.Index(models.F('monitor_id'), checks.results.hours.HourOf('checked_at'), condition=models.Q(('verdict', 'up'), _negated=True), name='result_failures'),
        ),
        migrations.AddIndex(
            model_name='checkresult',
            index=django.contrib.postgres.indexes.BrinIndex(checks.results.hours.MinuteOf('checked_at'), autosummarize=True, name='result_times'),
        ),
    ]
