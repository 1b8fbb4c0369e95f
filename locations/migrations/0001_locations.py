import core.ids
import django.db.models.deletion
import functools
from django.conf import settings
from django.db import migrations, models
from django.utils import timezone


def create_default(apps, schema_editor):
    apps.get_model("locations", "Location").objects.create(public_id="default", created_at=timezone.now(), preselected=True)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Location',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=functools.partial(core.ids.new_id, *('loc',), **{}), max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(help_text='Empty for the default location: LOCATION_NAME.', max_length=100)),
                ('preselected', models.BooleanField(default=False, help_text='New monitors are checked from here.')),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='locations', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='locations', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='JoinToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('lookup', models.CharField(editable=False, max_length=20, unique=True)),
                ('digest', models.BinaryField(max_length=32)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
                ('location', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='join_tokens', to='locations.location')),
            ],
        ),
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=functools.partial(core.ids.new_id, *('agt',), **{}), editable=False, max_length=40, unique=True)),
                ('lookup', models.CharField(editable=False, max_length=20, unique=True)),
                ('digest', models.BinaryField(max_length=32)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(help_text='The name of its machine, as the agent said it.', max_length=100)),
                ('version', models.CharField(max_length=40)),
                ('protocol', models.IntegerField()),
                ('last_seen_at', models.DateTimeField(null=True)),
                ('network_down', models.BooleanField(default=False, help_text='It said that its own network is down.')),
                ('checks', models.BigIntegerField(default=0, help_text='Results that it sent.')),
                ('checks_per_min', models.IntegerField(default=0)),
                ('lag_ms', models.IntegerField(help_text='From the lease of a check to its result, without its probe.', null=True)),
                ('location', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='agents', to='locations.location')),
            ],
        ),
        migrations.RunPython(create_default, migrations.RunPython.noop),
    ]
