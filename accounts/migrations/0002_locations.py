from django.db import migrations, models


def limit_plans(apps, schema_editor):
    plan = apps.get_model("accounts", "Plan")
    for name, limit in [("free", 1), ("pro", 10)]:
        plan.objects.filter(name=name).update(location_limit=limit)


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='plan',
            name='location_limit',
            field=models.PositiveIntegerField(blank=True, help_text='How many private locations an account may own. Empty: no limit.', null=True),
        ),
        migrations.RunPython(limit_plans, migrations.RunPython.noop),
    ]
