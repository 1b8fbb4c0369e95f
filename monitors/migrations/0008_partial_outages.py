import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0007_index_locations'),
    ]

    operations = [
        migrations.CreateModel(
            name='LocationFailure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('location_id', models.BigIntegerField(null=True)),
                ('config_version', models.IntegerField()),
                ('failures', models.IntegerField(default=0)),
                ('since', models.DateTimeField()),
                ('reason_code', models.CharField(choices=[('timeout', 'timeout'), ('dns_failure', 'dns_failure'), ('connection_failure', 'connection_failure'), ('tls_failure', 'tls_failure'), ('http_failure', 'http_failure'), ('content_failure', 'content_failure'), ('partial_response', 'partial_response'), ('redirect_failure', 'redirect_failure'), ('blocked_target', 'blocked_target'), ('heartbeat_missed', 'heartbeat_missed'), ('heartbeat_failed', 'heartbeat_failed'), ('worker_lost', 'worker_lost')], max_length=20, null=True)),
                ('detail', models.TextField(null=True)),
                ('notified_at', models.DateTimeField(null=True)),
                ('monitor', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='location_failures', to='monitors.monitor')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('monitor', 'location_id'), name='one_failure_per_location', nulls_distinct=False)],
            },
        ),
    ]
