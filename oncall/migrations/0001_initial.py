import core.ids
import django.db.models.deletion
import functools
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0003_staff_from_groups'),
        ('incidents', '0005_escalation'),
        ('projects', '0003_viewers'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Contact',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('rules', models.JSONField(help_text='As in the API: [{after_min, channel_id}].')),
            ],
        ),
        migrations.CreateModel(
            name='EscalationPolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=functools.partial(core.ids.new_id, *('esc',), **{}), editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(max_length=200)),
                ('steps', models.JSONField()),
                ('repeat', models.PositiveSmallIntegerField(default=0)),
                ('acknowledge_timeout_min', models.PositiveSmallIntegerField(default=0, help_text='0: never.')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='escalation_policies', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='escalation_policies', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='OnCallSchedule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=functools.partial(core.ids.new_id, *('ocs',), **{}), editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('name', models.CharField(max_length=200)),
                ('time_zone', models.CharField(max_length=64)),
                ('layers', models.JSONField()),
                ('overrides', models.JSONField(default=list)),
                ('calendar_digest', models.BinaryField(max_length=32, null=True, unique=True)),
                ('announced_until', models.DateTimeField(editable=False, help_text='Gaps and hand-overs that begin before were announced.', null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='on_call_schedules', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='on_call_schedules', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='AcknowledgeLink',
            fields=[
                ('digest', models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ('expires_at', models.DateTimeField()),
                ('incident', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='incidents.incident')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['expires_at'], name='acknowledge_link_expiry')],
            },
        ),
    ]
