import core.ids
import core.crypto
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('incidents', '0001_initial'),
        ('monitors', '0001_initial'),
        ('projects', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Badge',
            fields=[
                ('monitor', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='badge', serialize=False, to='monitors.monitor')),
                ('key', models.CharField(max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='StatusPage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.status_page_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('version', models.IntegerField(default=1)),
                ('name', models.CharField(max_length=200)),
                ('slug', models.CharField(max_length=64, unique=True)),
                ('description', models.TextField(default='')),
                ('published', models.BooleanField(default=True)),
                ('theme', models.CharField(choices=[('auto', 'Auto'), ('light', 'Light'), ('dark', 'Dark')], default='auto', max_length=5)),
                ('accent', models.CharField(help_text="#rrggbb; null: Pulsekeeper's own.", max_length=7, null=True)),
                ('password_hash', models.CharField(default='', editable=False, max_length=200)),
                ('custom_domain', models.CharField(max_length=253, null=True, unique=True)),
                ('show_window_names', models.BooleanField(default=False, help_text='Else a maintenance window is shown without its name.')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='status_pages', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='status_pages', to='projects.project')),
            ],
        ),
        migrations.CreateModel(
            name='PageLogo',
            fields=[
                ('page', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='logo', serialize=False, to='statuspages.statuspage')),
                ('image', models.BinaryField()),
                ('width', models.SmallIntegerField()),
                ('height', models.SmallIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='PageGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(default='', max_length=200)),
                ('page', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='groups', to='statuspages.statuspage')),
            ],
        ),
        migrations.CreateModel(
            name='PageEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('note', 'Note'), ('down', 'Down'), ('recovered', 'Recovered')], max_length=9)),
                ('source', models.CharField(max_length=60)),
                ('title', models.CharField(max_length=300)),
                ('text', models.TextField()),
                ('at', models.DateTimeField()),
                ('addressed_at', models.DateTimeField(help_text='When a mail for each subscriber was written.', null=True)),
                ('ended', models.BooleanField(default=False)),
                ('incident', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='incidents.incident')),
                ('page', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='statuspages.statuspage')),
            ],
        ),
        migrations.CreateModel(
            name='PageMonitor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='monitors', to='statuspages.pagegroup')),
                ('monitor', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitors.monitor')),
                ('page', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='statuspages.statuspage')),
            ],
        ),
        migrations.CreateModel(
            name='PageNote',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.page_note_id, editable=False, max_length=40, unique=True)),
                ('title', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
                ('resolved_at', models.DateTimeField(null=True)),
                ('incident', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='incidents.incident')),
                ('page', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notes', to='statuspages.statuspage')),
            ],
        ),
        migrations.CreateModel(
            name='NoteUpdate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.note_update_id, editable=False, max_length=40, unique=True)),
                ('status', models.CharField(choices=[('investigating', 'Investigating'), ('identified', 'Identified'), ('monitoring', 'Monitoring'), ('resolved', 'Resolved')], max_length=13)),
                ('text', models.TextField()),
                ('at', models.DateTimeField()),
                ('note', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='updates', to='statuspages.pagenote')),
            ],
        ),
        migrations.CreateModel(
            name='Subscriber',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=core.ids.subscriber_id, editable=False, max_length=40, unique=True)),
                ('created_at', models.DateTimeField()),
                ('address', core.crypto.EncryptedField()),
                ('address_digest', models.BinaryField(max_length=32)),
                ('hint', models.CharField(help_text='a…@example.com', max_length=200)),
                ('confirmed_at', models.DateTimeField(null=True)),
                ('page', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='subscribers', to='statuspages.statuspage')),
            ],
        ),
        migrations.CreateModel(
            name='PageMail',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(choices=[('gathering', 'Gathering'), ('waiting', 'Waiting'), ('sent', 'Sent'), ('dead', 'Dead'), ('failed', 'Failed')], default='waiting', max_length=9)),
                ('next_try_at', models.DateTimeField()),
                ('leased_until', models.DateTimeField(null=True)),
                ('give_up_at', models.DateTimeField()),
                ('attempts', models.IntegerField(default=0)),
                ('done_at', models.DateTimeField(help_text='When it was sent, or given up.', null=True)),
                ('last_error', models.TextField(null=True)),
                ('event', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='mails', to='statuspages.pageevent')),
                ('subscriber', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mails', to='statuspages.subscriber')),
            ],
        ),
        migrations.AddIndex(
            model_name='pageevent',
            index=models.Index(condition=models.Q(('addressed_at', None)), fields=['id'], name='page_event_new'),
        ),
        migrations.AddIndex(
            model_name='pageevent',
            index=models.Index(condition=models.Q(('ended', False), ('kind', 'down')), fields=['id'], name='page_event_going_on'),
        ),
        migrations.AddConstraint(
            model_name='pageevent',
            constraint=models.UniqueConstraint(fields=('page', 'source'), name='page_event_once'),
        ),
        migrations.AddConstraint(
            model_name='pagemonitor',
            constraint=models.UniqueConstraint(fields=('page', 'monitor'), name='monitor_once_on_a_page'),
        ),
        migrations.AddIndex(
            model_name='pagenote',
            index=models.Index(fields=['page', 'created_at'], name='notes_of_page'),
        ),
        migrations.AddIndex(
            model_name='subscriber',
            index=models.Index(condition=models.Q(('confirmed_at', None)), fields=['created_at'], name='subscriber_unconfirmed'),
        ),
        migrations.AddConstraint(
            model_name='subscriber',
            constraint=models.UniqueConstraint(fields=('page', 'address_digest'), name='subscriber_once_on_a_page'),
        ),
        migrations.AddIndex(
            model_name='pagemail',
            index=models.Index(condition=models.Q(('state__in', ['gathering', 'waiting'])), fields=['next_try_at'], name='pagemail_open'),
        ),
        migrations.AddIndex(
            model_name='pagemail',
            index=models.Index(condition=models.Q(('state', 'dead')), fields=['id'], name='pagemail_dead'),
        ),
        migrations.AddConstraint(
            model_name='pagemail',
            constraint=models.UniqueConstraint(fields=('event', 'subscriber'), name='one_mail_per_event_and_subscriber'),
        ),
        migrations.AddConstraint(
            model_name='pagemail',
            constraint=models.UniqueConstraint(condition=models.Q(('event', None)), fields=('subscriber',), name='one_question_per_subscriber'),
        ),
    ]
