"""What ON DELETE CASCADE would do to results and roll-ups, were they not too many for one transaction."""

from django.db import migrations

NOTE = """
CREATE FUNCTION note_deleted_monitor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO checks_deletedmonitor (monitor_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER note_deleted AFTER DELETE ON monitors_monitor
    FOR EACH ROW EXECUTE FUNCTION note_deleted_monitor();
"""
UNDO = """
DROP TRIGGER note_deleted ON monitors_monitor;
DROP FUNCTION note_deleted_monitor();
"""


class Migration(migrations.Migration):
    dependencies = [("monitors", "0004_watch_domains"), ("checks", "0005_deleted_monitors")]

    operations = [migrations.RunSQL(NOTE, UNDO)]
