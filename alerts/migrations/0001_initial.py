import core.ids
import core.crypto
import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
import alerts.models
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('incidents', '0001_initial'),
        ('monitors', '0001_initial'),
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertChannel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.channel_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(max_length=200)),
                ('kind', models.CharField(choices=alerts.models.kind_choices, max_length=20)),
                ('config', core.crypto.EncryptedField()),
                ('hint', models.CharField(help_text='Distinguishes channels: a…@example.com, a host, a scheme.', max_length=200)),
                ('enabled', models.BooleanField(default=True)),
                ('topics', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('down', 'Down'), ('recovered', 'Recovered'), ('slow', 'Slow'), ('expiry', 'Expiry'), ('reminder', 'Reminder'), ('dns_change', 'Dns Change'), ('too_often', 'Too Often')], max_length=10), size=None)),
                ('scope', models.CharField(choices=[('all', 'All'), ('project', 'Project'), ('chosen', 'Chosen')], default='all', max_length=7)),
                ('remind_every_hours', models.PositiveSmallIntegerField(default=24)),
                ('confirmed_at', models.DateTimeField(null=True)),
                ('confirmation_digest', models.BinaryField(max_length=32, null=True, unique=True)),
                ('confirmation_until', models.DateTimeField(editable=False, null=True)),
                ('failures', models.IntegerField(default=0, help_text='Failed attempts since the last success.')),
                ('last_sent_at', models.DateTimeField(null=True)),
                ('monitors', models.ManyToManyField(related_name='alert_channels', to='monitors.monitor')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alert_channels', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='alert_channels', to='projects.project')),
                ('scope_project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.delivery_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('state', models.CharField(choices=[('gathering', 'Gathering'), ('waiting', 'Waiting'), ('sent', 'Sent'), ('dead', 'Dead'), ('failed', 'Failed')], default='waiting', max_length=9)),
                ('next_try_at', models.DateTimeField()),
                ('leased_until', models.DateTimeField(null=True)),
                ('give_up_at', models.DateTimeField()),
                ('attempts', models.IntegerField(default=0)),
                ('last_error', models.TextField(null=True)),
                ('done_at', models.DateTimeField(help_text='When it was sent, or given up.', null=True)),
                ('channel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerts.alertchannel')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
            },
        ),
        migrations.CreateModel(
            name='DeliveryItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source', models.CharField(max_length=40)),
                ('payload', models.JSONField()),
                ('at', models.DateTimeField()),
                ('channel', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='alerts.alertchannel')),
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='alerts.delivery')),
                ('incident', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='delivery_items', to='incidents.incident')),
            ],
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state__in', ['gathering', 'waiting'])), fields=['next_try_at'], name='delivery_open'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['channel', 'created_at'], name='delivery_log'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'dead')), fields=['id'], name='delivery_dead'),
        ),
        migrations.AddConstraint(
            model_name='deliveryitem',
            constraint=models.UniqueConstraint(fields=('channel', 'source'), name='one_item_per_channel_and_source'),
        ),
    ]
