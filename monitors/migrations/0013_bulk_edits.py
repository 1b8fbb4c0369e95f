import core.crypto
import core.ids
import django.db.models.deletion
import functools
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0012_index_reading_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='BulkEdit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=functools.partial(core.ids.new_id, *('edt',), **{}), editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField(db_index=True)),
                ('undone_at', models.DateTimeField(null=True)),
                ('channels', models.JSONField(default=list)),
                ('user', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='BulkEditItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('etag', models.CharField(max_length=40)),
                ('before', core.crypto.EncryptedField(null=True)),
                ('edit', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='monitors.bulkedit')),
                ('monitor', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitors.monitor')),
            ],
        ),
    ]
