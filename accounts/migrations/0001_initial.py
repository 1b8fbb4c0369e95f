import core.ids
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models


PLANS = [("free", 300, None, 50), ("pro", 60, None, 1_000), ("local", 10, 60, None)]


def create_plans(apps, schema_editor):
    plan = apps.get_model("accounts", "Plan")
    for name, min_interval_sec, default_interval_sec, monitor_limit in PLANS:
        plan.objects.create(
            name=name,
            min_interval_sec=min_interval_sec,
            default_interval_sec=default_interval_sec,
            monitor_limit=monitor_limit,
        )


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(unique=True)),
                ('min_interval_sec', models.PositiveIntegerField(help_text='Seconds; shorter intervals of monitors are raised to it.', validators=[django.core.validators.MinValueValidator(1)])),
                ('default_interval_sec', models.PositiveIntegerField(blank=True, help_text='Seconds; the interval of monitors that name none. Empty: the shortest.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('monitor_limit', models.PositiveIntegerField(blank=True, help_text='How many monitors an account may own. Empty: no limit.', null=True)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('public_id', models.CharField(default=core.ids.user_id, editable=False, max_length=40, unique=True)),
                ('email', models.EmailField(help_text='Kept in lower case; it is the login name.', max_length=254, unique=True)),
                ('is_staff', models.BooleanField(default=False)),
                ('is_active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
                ('plan', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='accounts.plan')),
            ],
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('email', django.db.models.functions.text.Lower('email'))), name='user_email_is_lower_case'),
        ),
        migrations.RunPython(create_plans, migrations.RunPython.noop),
    ]
