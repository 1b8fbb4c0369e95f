"""Tags of monitors in files."""

from __future__ import annotations

import pytest

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
