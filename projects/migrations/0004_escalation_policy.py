import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('oncall', '0001_initial'),
        ('projects', '0003_viewers'),
    ]

    operations = [
        migrations.AddField(
            model_name='project',
            name='escalation_policy',
            field=models.ForeignKey(help_text='Of monitors without one of their own.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='oncall.escalationpolicy'),
        ),
    ]
