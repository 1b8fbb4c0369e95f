from django.db import migrations, models

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
    -- With what means are made of in the index, ninety days of a monitor are a dozen pages instead of 2,160.
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
    dependencies = [("checks", "0003_results_by_day")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(ROLLUPS, "DROP TABLE checks_hourlyrollup")],
            state_operations=[
                migrations.CreateModel(
                    name="HourlyRollup",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "monitor_id", "hour",
                                blank=True, editable=False, primary_key=True, serialize=False,
                            ),
                        ),
                        ("monitor_id", models.BigIntegerField()),
                        ("hour", models.DateTimeField()),
                        ("latency_sum", models.BigIntegerField()),
                        ("up", models.IntegerField()),
                        ("slow", models.IntegerField()),
                        ("down", models.IntegerField()),
                        ("timed", models.IntegerField()),
                        ("latency_min", models.IntegerField(null=True)),
                        ("latency_max", models.IntegerField(null=True)),
                    ],
                ),
            ],
        ),
        migrations.CreateModel(
            name="RollupProgress",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("closed_until", models.DateTimeField(null=True)),
                ("rolled_until", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LateHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("monitor_id", models.BigIntegerField()),
                ("hour", models.DateTimeField()),
            ],
        ),
    ]  # fmt: skip
