"""Changes of many monitors beside other changes of the same ones: nothing is lost, and nothing waits forever."""

from __future__ import annotations

from functools import partial

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.selectors import routes_of
from core.clock import utc_now
from core.errors import ChangedMeanwhile
from monitors import bulk_edits
from monitors.bulk_edits import Change, Outcome, Planned
from monitors.filters import tags_of
from monitors.models import BulkEditItem, Monitor
from monitors.operations import delete
from monitors.services import update_monitor
from projects.access import Caller
from tests.factories import ChannelFactory, MonitorFactory, UserFactory
from tests.helpers import run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS, COUNT = 5, 4


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def monitors(user: User) -> list[Monitor]:
    return [MonitorFactory(owner=user, tags=["web"]) for _ in range(COUNT)]


def planned(user: User, monitors: list[Monitor], change: Change) -> list[Planned]:
    return bulk_edits.plan(Caller(user), [monitor.pk for monitor in monitors], change)


def tags() -> list[list[str]]:
    return list(Monitor.objects.order_by("pk").values_list("tags", flat=True))


def test_two_edits_at_once_both_add_their_tags(user: User, monitors: list[Monitor]) -> None:
    for number in range(ROUNDS):
        changes = [Change(add_tags=[f"{word}{number}"]) for word in ("a", "b")]
        plans = [planned(user, monitors, change) for change in changes]
        run_concurrently(
            *(
                partial(bulk_edits.run, Caller(user), plan, change, now=utc_now())
                for plan, change in zip(plans, changes, strict=True)
            )
        )
        assert all({f"a{number}", f"b{number}"} <= set(found) for found in tags())
    for monitor in Monitor.objects.all():
        assert monitor.tags == monitor.tag_keys


def test_a_plan_reads_dependencies_once(user: User) -> None:
    caller, router = Caller(user), MonitorFactory(owner=user)
    change, counts = Change(add_parents=[router.public_id]), []
    for count in (2, 20):
        children = [MonitorFactory(owner=user) for _ in range(count)]
        with CaptureQueriesContext(connection) as queries:
            plan = planned(user, children, change)
        counts.append(len(queries))
        assert all(one.changes and one.error is None for one in plan)
        assert {one.is_changed for one in bulk_edits.run(caller, plan, change, now=utc_now())} == {True}
        assert not any(one.changes for one in planned(user, children, change))
    assert counts[0] == counts[1] <= 12, counts
    (refused,) = planned(user, [router], Change(add_parents=[children[0].public_id]))
    assert "depends on this monitor itself" in str(refused.error)


def test_an_undo_at_the_same_time_as_a_change_does_not_lose_the_change(user: User, monitors: list[Monitor]) -> None:
    caller, change = Caller(user), Change(given={"slow_ms": 9})
    for number in range(ROUNDS):
        edit = bulk_edits.start_edit(caller, now=utc_now())
        bulk_edits.run(caller, planned(user, monitors, change), change, now=utc_now(), edit=edit)
        others = {"slow_ms": 100 + number}
        run_concurrently(
            partial(bulk_edits.undo, caller, edit, now=utc_now()),
            *(partial(update_monitor, caller, one.public_id, others, now=utc_now()) for one in monitors),
        )
        assert set(Monitor.objects.values_list("slow_ms", flat=True)) == {100 + number}


def test_two_undos_at_once_restore_each_monitor_once(user: User, monitors: list[Monitor]) -> None:
    caller, change = Caller(user), Change(add_tags=["x"])
    edit = bulk_edits.start_edit(caller, now=utc_now())
    bulk_edits.run(caller, planned(user, monitors, change), change, now=utc_now(), edit=edit)
    undo = partial(bulk_edits.undo, caller, edit, now=utc_now())
    outcomes = [one for part in run_concurrently(undo, undo) for one in part]  # type: ignore[attr-defined]
    assert sum(one.is_changed for one in outcomes) == COUNT
    assert all(isinstance(one.error, ChangedMeanwhile) for one in outcomes if not one.is_changed)
    assert tags() == [["web"]] * COUNT
    assert not BulkEditItem.objects.exists()


def test_a_deletion_at_the_same_time_ends_both(user: User, monitors: list[Monitor]) -> None:
    caller, change = Caller(user), Change(add_tags=["x"])
    edit = bulk_edits.start_edit(caller, now=utc_now())
    plan = planned(user, monitors, change)
    keys = [monitor.pk for monitor in monitors]
    changed, _ = run_concurrently(
        partial(bulk_edits.run, caller, plan, change, now=utc_now(), edit=edit), partial(delete, keys, caller=caller)
    )
    assert isinstance(changed, list)
    assert {one.error.code for one in changed if isinstance(one, Outcome) and one.error} <= {"not_found"}
    assert not Monitor.objects.exists()
    assert not BulkEditItem.objects.exists()


def test_a_rolled_back_change_leaves_the_tags_and_what_they_select(user: User, monitors: list[Monitor]) -> None:
    channel, first = ChannelFactory(owner=user, monitors="chosen", monitor_tags=["new"]), monitors[0]
    edit = bulk_edits.start_edit(Caller(user), now=utc_now())
    change = Change(add_tags=["New"])
    with transaction.atomic():
        bulk_edits.run(Caller(user), planned(user, [first], change), change, now=utc_now(), edit=edit)
        assert channel.pk in routes_of([first.pk])[first.pk]
        transaction.set_rollback(True)
    first.refresh_from_db()
    assert (first.tags, first.tag_keys) == (["web"], ["web"])
    assert tags_of(Monitor.objects.all()) == [("web", COUNT)]
    assert channel.pk not in routes_of([first.pk]).get(first.pk, {})
    assert not BulkEditItem.objects.exists()
