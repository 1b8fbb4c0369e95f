import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0005_confirmation'),
    ]

    operations = [
        migrations.CreateModel(
            name='Verification',
            fields=[
                ('monitor', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='verification', serialize=False, to='monitors.monitor')),
                ('claim', models.BigIntegerField()),
                ('config_version', models.IntegerField()),
                ('location_id', models.BigIntegerField(null=True)),
                ('began_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('asked', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), size=None)),
                ('outcome', models.JSONField()),
                ('votes', models.JSONField(default=list)),
            ],
        ),
        migrations.AddField(
            model_name='monitor',
            name='locations',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='monitor',
            name='quorum',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='monitorstate',
            name='agent_id',
            field=models.BigIntegerField(null=True),
        ),
    ]
