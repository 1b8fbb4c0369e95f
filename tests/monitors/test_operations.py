"""Bulk actions change only monitors that the caller may change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from core.bulk import BulkResult
from core.clock import utc_now
from monitors import operations
from monitors.models import Monitor, MonitorState, StatusChange
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory

pytestmark = pytest.mark.django_db

OPERATIONS: dict[str, Callable[..., BulkResult[Monitor]]] = {
    "pause": partial(operations.pause, now=utc_now()),
    "mute": partial(operations.mute_for, minutes=30, now=utc_now()),
    "delete": operations.delete,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_others_are_not_touched_even_if_named(name: str) -> None:
    """As if a membership ended between selection and action."""
    user = UserFactory()
    ours, theirs = MonitorFactory(owner=user, up=True), MonitorFactory(up=True)

    def all_of(monitor: Monitor) -> list[object]:
        return [
            list(Monitor.objects.filter(pk=monitor.pk).values()),
            list(MonitorState.objects.filter(pk=monitor.pk).values()),
            list(StatusChange.objects.filter(monitor=monitor).order_by("pk").values()),
        ]

    before = all_of(theirs)
    outcome = OPERATIONS[name]([ours.pk, theirs.pk], caller=Caller(user))
    assert [monitor.public_id for monitor in outcome.done] == [ours.public_id]
    assert outcome.left == {}
    assert all_of(theirs) == before
    assert [monitor.public_id for monitor in OPERATIONS[name]([theirs.pk]).done] == [theirs.public_id]


def test_what_is_deleted_is_gone() -> None:
    user = UserFactory()
    monitors = [MonitorFactory(owner=user, down=True, fail_threshold=1) for _ in range(3)]
    assert len(operations.delete([monitor.pk for monitor in monitors[:2]]).done) == 2
    assert list(Monitor.objects.all()) == [monitors[2]]
    assert not MonitorState.objects.exclude(pk=monitors[2].pk).exists()
    assert operations.delete([monitors[0].pk]).done == []
