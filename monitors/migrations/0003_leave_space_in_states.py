from django.db import migrations

# Each check updates its state twice, and each time the indexed `next_due_at`, so no update can be HOT. With half of each
# page free, new versions stay on the page of the old ones, and the table keeps its size. It saves no WAL:
# benchmarks/updates.py compares both. The thresholds of autovacuum stay: in each of its rounds they are exceeded anyway.
# The lock stops neither readers nor writers. Existing pages get their space as rows move.
_SET = "ALTER TABLE monitors_monitorstate SET (fillfactor = 50)"
_RESET = "ALTER TABLE monitors_monitorstate RESET (fillfactor)"


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0002_signals_and_canary'),
    ]

    operations = [
        migrations.RunSQL(_SET, _RESET),
    ]
