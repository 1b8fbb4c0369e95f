import django.db.models.deletion
import core.crypto
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('monitors', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='OAuthState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('provider', models.CharField(max_length=20)),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('session', core.crypto.EncryptedField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Connector',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('provider', models.CharField(max_length=20)),
                ('created_at', models.DateTimeField()),
                ('meta', models.CharField(help_text='The name of the account at the provider.', max_length=200, null=True)),
                ('tokens', core.crypto.EncryptedField()),
                ('tokens_version', models.UUIDField(default=uuid.uuid4, editable=False)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('renewing_until', models.DateTimeField(editable=False, null=True)),
                ('undo_digest', models.BinaryField(max_length=32, null=True)),
                ('undo_until', models.DateTimeField(editable=False, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='connectors', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'provider'), name='one_connector_per_user_and_provider')],
            },
        ),
        migrations.CreateModel(
            name='Import',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('provider', models.CharField(max_length=20)),
                ('external_ref', models.CharField(max_length=200)),
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='imported_as', to='monitors.monitor')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'provider', 'external_ref'), name='one_monitor_per_external_ref')],
            },
        ),
    ]
