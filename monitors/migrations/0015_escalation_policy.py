import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0014_index_recoveries'),
        ('oncall', '0001_initial'),
        ('projects', '0004_escalation_policy'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='monitor',
            name='escalation_policy',
            field=models.ForeignKey(db_index=False, help_text="Without one, its project's applies.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='oncall.escalationpolicy'),
        ),
    ]
