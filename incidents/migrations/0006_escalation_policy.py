import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0005_escalation'),
        ('oncall', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='escalation',
            name='policy',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='oncall.escalationpolicy'),
        ),
        migrations.AddIndex(
            model_name='escalation',
            index=models.Index(condition=models.Q(('next_at__isnull', False)), fields=['next_at'], name='escalation_due'),
        ),
    ]
