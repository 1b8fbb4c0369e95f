import core.ids
import core.crypto
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.project_id, editable=False, max_length=40, unique=True)),
                ('name', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('caller', models.CharField(max_length=50)),
                ('key', models.CharField(max_length=255)),
                ('fingerprint', models.BinaryField(help_text='Keyed digest of method, address and body.', max_length=32)),
                ('created_at', models.DateTimeField(db_index=True)),
                ('object_id', models.CharField(db_default='', default='', max_length=40)),
                ('answer', core.crypto.EncryptedField(help_text='Empty if the object is read again.', null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('caller', 'key'), name='one_use_of_an_idempotency_key')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.member_id, editable=False, max_length=40, unique=True)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('member', 'Member')], max_length=10)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('invited_email', models.EmailField(db_index=True, help_text='In lower case.', max_length=254, null=True)),
                ('invitation_digest', models.BinaryField(max_length=32, null=True, unique=True)),
                ('invited_until', models.DateTimeField(null=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='projects.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'user'), name='one_membership_per_user'), models.UniqueConstraint(condition=models.Q(('role', 'owner')), fields=('project',), name='one_owner_per_project'), models.UniqueConstraint(fields=('project', 'invited_email'), name='one_invitation_per_address'), models.CheckConstraint(condition=models.Q(models.Q(('invitation_digest__isnull', True), ('invited_email__isnull', True), ('invited_until__isnull', True), ('user__isnull', False)), models.Q(('invitation_digest__isnull', False), ('invited_email__isnull', False), ('invited_until__isnull', False), ('role__in', ['admin', 'member']), ('user__isnull', True)), _connector='OR'), name='member_or_invitation')],
            },
        ),
    ]
