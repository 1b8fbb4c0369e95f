import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0002_heartbeats_and_schedulers'),
    ]

    operations = [
        migrations.CreateModel(
            name='DomainRegistration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='ASCII, in lower case.', max_length=253, unique=True)),
                ('expires_at', models.DateTimeField(null=True)),
                ('looked_up_at', models.DateTimeField(help_text='The last lookup that told an expiry.', null=True)),
                ('next_lookup_at', models.DateTimeField(db_index=True)),
                ('failures', models.IntegerField(default=0, help_text='Lookups that failed since then.')),
                ('error', models.TextField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='monitor',
            name='registration',
            field=models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='monitors', to='monitors.domainregistration'),
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
    ]
