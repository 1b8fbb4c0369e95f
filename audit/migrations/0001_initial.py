import core.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Entry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.audit_entry_id, editable=False, max_length=40)),
                ('at', models.DateTimeField()),
                ('action', models.CharField(max_length=30)),
                ('actor_type', models.CharField(choices=[('user', 'User'), ('token', 'Token'), ('staff', 'Staff'), ('operator', 'Operator'), ('anonymous', 'Anonymous')], max_length=9)),
                ('actor_id', models.BigIntegerField(null=True)),
                ('actor_public_id', models.CharField(default='', max_length=40)),
                ('actor_email', models.CharField(default='', help_text='As it was then.', max_length=254)),
                ('subject_id', models.BigIntegerField(null=True)),
                ('project_id', models.BigIntegerField(null=True)),
                ('project_public_id', models.CharField(default='', max_length=40)),
                ('target_id', models.CharField(default='', help_text='Public id of what it was done to.', max_length=40)),
                ('target_name', models.CharField(default='', help_text='As it was then.', max_length=254)),
                ('address', models.GenericIPAddressField(null=True)),
                ('user_agent', models.CharField(default='', max_length=200)),
                ('details', models.JSONField(default=dict, help_text='A few words more; never a secret.')),
            ],
            options={
                'verbose_name': 'audit entry',
                'verbose_name_plural': 'audit entries',
                'indexes': [models.Index(condition=models.Q(('actor_id__isnull', False)), fields=['actor_id', 'id'], name='audit_actor'), models.Index(condition=models.Q(('subject_id__isnull', False)), fields=['subject_id', 'id'], name='audit_subject'), models.Index(condition=models.Q(('project_id__isnull', False)), fields=['project_id', 'id'], name='audit_project'), models.Index(fields=['action', 'id'], name='audit_action'), models.Index(fields=['actor_type', 'id'], name='audit_actor_type'), models.Index(fields=['address', 'id'], name='audit_address'), models.Index(fields=['actor_email', 'id'], name='audit_actor_email'), models.Index(fields=['target_name', 'id'], name='audit_target_name'), models.Index(fields=['at'], name='audit_at')],
            },
        ),
    ]
