import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0001_initial'),
        ('monitors', '0011_dependencies'),
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='incident',
            name='caused_by',
            field=models.ForeignKey(db_constraint=False, db_index=False, help_text='The outage of a monitor that this one depends on, which held its alerts.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='effects', to='incidents.incident'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='quiet',
            field=models.CharField(choices=[('muted', 'Muted'), ('maintenance', 'Maintenance'), ('flapping', 'Flapping'), ('held', 'Held')], help_text='Why the last notification was suppressed.', max_length=11, null=True),
        ),
    ]
