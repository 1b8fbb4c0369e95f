"""Tags of monitors in files."""

from __future__ import annotations

import pytest

from alerts.models import AlertChannel
from incidents.models import MaintenanceWindow
from monitors.models import Monitor
from tests.factories import UserFactory
from tests.manifests.helpers import apply_text, exported, refusal

pytestmark = pytest.mark.django_db

FILE = """\
version: 1
monitors:
  - name: Backup
    type: heartbeat
    interval_sec: 86400
    tags: {tags}
"""


def test_a_file_sets_changes_and_exports_them() -> None:
    user = UserFactory()
    apply_text(user, FILE.format(tags='[" Web ", "on", "2026", "Größe: XL"]'))
    assert Monitor.objects.get().tags == ["Web", "on", "2026", "Größe: XL"]
    assert apply_text(user, exported(user)).changes == []
    assert apply_text(user, FILE.format(tags='[Web, "on", "2026", "Größe: XL"]')).changes == []
    (change,) = apply_text(user, FILE.format(tags="[db]"), dry_run=True).changes
    assert [each.field for each in change.fields] == ["tags"]
    apply_text(user, FILE.format(tags="[db]"))
    monitor = Monitor.objects.get()
    assert (monitor.tags, monitor.tag_keys) == (["db"], ["db"])
    apply_text(user, FILE.format(tags="[]"))
    assert Monitor.objects.get().tags == []
    assert "tags" not in exported(user)


@pytest.mark.parametrize(
    ("tags", "place"),
    [
        ("web", "monitors[0].tags"),
        ("[5]", "monitors[0].tags[0]"),
        ('["a,b"]', "monitors[0].tags[0]"),
        ("[web, WEB]", "monitors[0].tags"),
        (str(list(map(str, range(21)))), "monitors[0].tags"),
    ],
)
def test_others_are_refused_with_their_place(tags: str, place: str) -> None:
    (problem,) = refusal(UserFactory(), FILE.format(tags=tags))
    assert f"{place}: " in problem
    assert not Monitor.objects.exists()


SELECTED = """\
version: 1
ungrouped: true
monitors:
  - {name: Shop, url: "http://127.0.0.1:9/", tags: [web]}
channels:
  - {name: Hook, kind: webhook, url: "http://127.0.0.1:9/", monitors: [], monitor_tags: [Web, db]}
maintenance_windows:
  - name: Update
    starts_at: 2030-01-01T00:00:00Z
    ends_at: 2030-01-01T01:00:00Z
    monitors: [Shop]
    monitor_tags: [db]
"""


def test_channels_and_windows_select_by_tags() -> None:
    user = UserFactory()
    apply_text(user, SELECTED)
    channel, window = AlertChannel.objects.get(name="Hook"), MaintenanceWindow.objects.get()
    assert (channel.scope, channel.monitor_tags, channel.monitors.count()) == ("chosen", ["Web", "db"], 0)
    assert (window.monitor_tags, window.monitor_tag_keys, window.monitors.count()) == (["db"], ["db"], 1)
    assert not apply_text(user, SELECTED).changes
    text = exported(user)
    assert text.count("monitor_tags:") == 2
    assert not apply_text(user, text).changes
    apply_text(user, SELECTED.replace("monitors: [], monitor_tags: [Web, db]", "monitors: [Shop]"))
    channel.refresh_from_db()
    assert (channel.monitor_tags, channel.monitors.count()) == ([], 1)
    (problem,) = refusal(user, SELECTED.replace("monitor_tags: [Web, db]", "monitor_tags: [a, A]"))
    assert "channels[0].monitor_tags: " in problem
    (problem,) = refusal(user, SELECTED.replace("monitors: [], monitor_tags", "monitors: all, monitor_tags"))
    assert "channels[0].monitor_tags: applies only if monitors is a list" in problem
