from django.db import migrations, models


def unpack(apps, schema_editor):
    # Imported here: only this direction needs it.
    from checks.results.packing import unpack

    unpack()


# Django makes no partitioned tables. `checks.results.packing` adds their partitions. Packed bytes cannot be compressed.
PACKED = """
CREATE TABLE checks_packedresults (
    monitor_id bigint NOT NULL,
    start timestamptz NOT NULL,
    count integer NOT NULL,
    verdicts smallint NOT NULL,
    data bytea NOT NULL
) PARTITION BY RANGE (start);
CREATE INDEX packed_monitors ON checks_packedresults (monitor_id);
CREATE TABLE checks_packedreasons (
    monitor_id bigint NOT NULL,
    hour timestamptz NOT NULL,
    reasons bytea NOT NULL,
    evidence bytea,
    PRIMARY KEY (monitor_id, hour)
) PARTITION BY RANGE (hour);
-- Not in CREATE TABLE, which PostgreSQL 15 refuses.
ALTER TABLE checks_packedresults ALTER data SET STORAGE EXTERNAL;
ALTER TABLE checks_packedreasons ALTER reasons SET STORAGE EXTERNAL, ALTER evidence SET STORAGE EXTERNAL;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('checks', '0004_locations'),
    ]

    operations = [
        migrations.AddField(
            model_name='rollupprogress',
            name='packed_until',
            field=models.DateTimeField(null=True),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(PACKED, "DROP TABLE checks_packedresults; DROP TABLE checks_packedreasons"),
            ],
            state_operations=[
                migrations.CreateModel(
                    name='PackedReasons',
                    fields=[
                        ('pk', models.CompositePrimaryKey('monitor_id', 'hour', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('monitor_id', models.BigIntegerField()),
                        ('hour', models.DateTimeField()),
                        ('reasons', models.BinaryField()),
                        ('evidence', models.BinaryField(null=True)),
                    ],
                ),
                migrations.CreateModel(
                    name='PackedResults',
                    fields=[
                        ('pk', models.CompositePrimaryKey('monitor_id', 'start', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('monitor_id', models.BigIntegerField()),
                        ('start', models.DateTimeField()),
                        ('count', models.IntegerField()),
                        ('verdicts', models.SmallIntegerField()),
                        ('data', models.BinaryField()),
                    ],
                    options={
                        'indexes': [models.Index(models.F('monitor_id'), name='packed_monitors')],
                    },
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, unpack),
    ]
