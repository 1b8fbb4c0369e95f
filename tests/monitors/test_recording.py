"""Recording results: which ones change the state, which are history only, and which are dropped."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import pytest
import time_machine

from checks.results.models import CheckResult
from checks.results.retention import erase_deleted
from checks.spec import Verdict
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_due
from monitors.serializers import serialize_monitors
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, check_record, minutes, outcome, run_concurrently, state_of

pytestmark = pytest.mark.django_db

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN


def check(monitor: Monitor, verdict: Verdict, *, minute: int, config_version: int = 1) -> None:
    """Claim at that minute and record at once."""
    now = NOON + minutes(minute)
    (claim,) = claim_due(now, limit=1)
    record([CheckRecord(claim.monitor_id, claim.number, config_version, outcome(verdict, at=now))], now=now)


def claims_stored(monitor: Monitor) -> list[int]:
    return list(CheckResult.objects.filter(monitor_id=monitor.pk).order_by("claim").values_list("claim", flat=True))


def test_first_result_sets_the_status_and_the_next_slot() -> None:
    monitor = MonitorFactory(up=True)
    state = state_of(monitor)
    assert (state.status, state.status_since, state.last_latency_ms) == ("up", NOON, 20)
    assert (state.next_due_at, state.claimed_at) == (NOON + minutes(1), None)
    change = StatusChange.objects.get()
    assert (change.before, change.after, change.at, change.processed_at) == (None, "up", NOON, None)


def test_down_at_the_threshold_and_up_again() -> None:
    monitor = MonitorFactory(up=True, fail_threshold=2)
    for minute, verdict in enumerate([DOWN, DOWN, DOWN, UP], start=1):
        check(monitor, verdict, minute=minute)
    changes = StatusChange.objects.order_by("pk").values_list("before", "after", "at", "claim", "reason_code")
    assert list(changes) == [
        (None, "up", NOON, 1, None),
        ("up", "down", NOON + minutes(2), 3, "http_failure"),
        ("down", "up", NOON + minutes(4), 5, None),
    ]
    assert StatusChange.objects.get(after="down").failing_since == NOON + minutes(1)
    assert claims_stored(monitor) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("interval_sec", "confirmation_sec", "kind", "due"),
    [(300, 60, "http", 30), (60, 300, "http", 60), (300, 60, "scheduler", 300)],
    ids=["early", "in its turn", "a trigger is never early"],
)
def test_a_failure_is_confirmed_early(interval_sec: int, confirmation_sec: int, kind: str, due: int) -> None:
    given = {"fail_threshold": 3, "confirmation_sec": confirmation_sec, "interval_sec": interval_sec}
    monitor = MonitorFactory(up=True, type=kind, **given)
    first = state_of(monitor).next_due_at
    assert first is not None
    (claim,) = claim_due(first, limit=1)
    record([CheckRecord(monitor.pk, claim.number, 1, outcome(DOWN, at=first))], now=first)
    state = state_of(monitor)
    assert (state.failures, state.next_due_at) == (1, first + timedelta(seconds=due))
    Monitor.objects.update(muted_until=first + minutes(60))
    (claim,) = claim_due(first + timedelta(seconds=due), limit=1)
    muted = outcome(DOWN, at=first + timedelta(seconds=due))
    record([CheckRecord(monitor.pk, claim.number, 1, muted)], now=first + timedelta(seconds=due))
    assert state_of(monitor).next_due_at == first + timedelta(seconds=due + interval_sec)


def test_no_slot_delays_the_check_that_confirms_a_failure() -> None:
    monitor = MonitorFactory(up=True, fail_threshold=2, confirmation_sec=65, interval_sec=60)
    first = state_of(monitor).next_due_at
    assert first is not None
    for seconds, due in ((0, 65), (65, 125)):
        at = first + timedelta(seconds=seconds)
        (claim,) = claim_due(at, limit=1)
        record([CheckRecord(monitor.pk, claim.number, 1, outcome(DOWN, at=at))], now=at)
        assert state_of(monitor).next_due_at == first + timedelta(seconds=due)
    assert state_of(monitor).status == DOWN


def test_a_reading_recorded_twice_counts_once() -> None:
    monitor = MonitorFactory(up=True, fail_threshold=2)
    claim_due(NOON + minutes(1), limit=1)
    failed = check_record(monitor, claim=2, verdict=DOWN, at=NOON + minutes(1))
    record([failed, failed], now=NOON + minutes(1))
    record([failed], now=NOON + minutes(1))
    assert (state_of(monitor).failures, state_of(monitor).status) == (1, "up")
    assert claims_stored(monitor) == [1, 2]


def test_an_older_result_is_history_only() -> None:
    monitor = MonitorFactory(up=True)
    claim_due(NOON + minutes(1), limit=1)
    claim_due(NOON + minutes(5), limit=1)
    record([check_record(monitor, claim=3, verdict=SLOW, at=NOON + minutes(5))], now=NOON + minutes(5))
    record([check_record(monitor, claim=2, verdict=UP, at=NOON + minutes(1))], now=NOON + minutes(6))
    state = state_of(monitor)
    assert (state.status, state.last_checked_at, state.applied_claim) == ("slow", NOON + minutes(5), 3)
    assert claims_stored(monitor) == [1, 2, 3]


def test_a_result_of_an_older_configuration_is_history_only() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True)
    claim_due(NOON + minutes(1), limit=1)
    update_monitor(Caller(user), monitor.public_id, {"url": "http://127.0.0.1:10/"}, now=NOON + minutes(1))
    record([check_record(monitor, claim=2, verdict=DOWN, at=NOON + minutes(1))], now=NOON + minutes(1))
    state = state_of(monitor)
    assert (state.status, state.failures, state.applied_claim) == ("up", 0, 1)
    assert claims_stored(monitor) == [1, 2]
    assert state.next_due_at == NOON + minutes(1), "and the new configuration is due at once"
    check(monitor, SLOW, minute=2, config_version=2)
    assert state_of(monitor).status == "slow"


def test_results_in_flight_of_a_paused_monitor_are_dropped() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True, fail_threshold=1)
    claim_due(NOON + minutes(1), limit=1)
    update_monitor(Caller(user), monitor.public_id, {"enabled": False}, now=NOON + minutes(1))
    record([check_record(monitor, claim=2, verdict=DOWN, at=NOON + minutes(1))], now=NOON + minutes(1))
    state = state_of(monitor)
    assert (state.status, state.next_due_at) == ("up", None)
    assert claims_stored(monitor) == [1]
    assert claim_due(NOON + minutes(99), limit=1) == []


def test_resumed_monitor_is_due_at_once_and_takes_the_next_result_as_a_first() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True, fail_threshold=3)
    check(monitor, DOWN, minute=1)
    update_monitor(Caller(user), monitor.public_id, {"enabled": False}, now=NOON + minutes(2))
    update_monitor(Caller(user), monitor.public_id, {"enabled": True}, now=NOON + minutes(9))
    assert (state_of(monitor).status, state_of(monitor).failures) == ("up", 0)
    check(monitor, DOWN, minute=9, config_version=3)
    assert state_of(monitor).status == "down"
    kinds = list(StatusChange.objects.order_by("pk").values_list("kind", flat=True))
    assert kinds == ["status", "paused", "resumed", "status"]


def test_a_deleted_monitor_leaves_nothing() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True)
    other = MonitorFactory(owner=user, up=True)
    claim_due(NOON + minutes(1), limit=2)
    delete_monitor(Caller(user), monitor.public_id)
    at = NOON + minutes(1)
    record([check_record(m, claim=2, verdict=UP, at=at) for m in (monitor, other)], now=at)
    erase_deleted()
    assert not CheckResult.objects.filter(monitor_id=monitor.pk).exists()
    assert claims_stored(other) == [1, 2], "the others of its batch are not lost with it"


def test_statistics_are_of_the_last_day_and_of_passes() -> None:
    monitor = MonitorFactory(created_at=NOON, up=True, fail_threshold=1, interval_sec=3600)
    check(monitor, DOWN, minute=60)
    check(monitor, SLOW, minute=120)
    monitor.refresh_from_db()
    assert shown(monitor, now=NOON + minutes(240)) == (75.0, 20.0)
    MonitorState.objects.update(next_due_at=NOON + minutes(60 * 48))
    monitor.refresh_from_db()
    assert shown(monitor, now=NOON + minutes(60 * 48)) == (100.0, None)


def shown(monitor: Monitor, *, now: datetime) -> tuple[float | None, float | None]:
    with time_machine.travel(now, tick=False):
        (row,) = serialize_monitors([monitor], caller=None)
    return row["uptime_24h"], row["avg_latency_24h"]


@pytest.mark.django_db(transaction=True)
def test_the_same_batch_recorded_by_many_at_once_moves_each_state_once() -> None:
    user = UserFactory()
    monitors = [MonitorFactory(owner=user, up=True, fail_threshold=2) for _ in range(20)]
    at = NOON + minutes(1)
    claim_due(at, limit=20)
    batch = [check_record(monitor, claim=2, verdict=DOWN, at=at) for monitor in monitors]
    run_concurrently(*(partial(record, batch[::order], now=at) for order in (1, -1, 1, -1)))
    assert {(state_of(m).failures, state_of(m).status, state_of(m).applied_claim) for m in monitors} == {(1, "up", 2)}
    assert CheckResult.objects.filter(claim=2).count() == 20


@pytest.mark.django_db(transaction=True)
def test_a_patch_and_a_result_at_once_both_hold() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True)
    for minute in range(1, 11):
        at = NOON + minutes(minute)
        (claim,) = claim_due(at, limit=1)
        found = check_record(monitor, claim=claim.number, verdict=UP, at=at)
        given = {"name": f"name {minute}"}
        run_concurrently(
            partial(record, [found], now=at), partial(update_monitor, Caller(user), monitor.public_id, given, now=at)
        )
        monitor.refresh_from_db()
        assert monitor.name == f"name {minute}"
        assert (state_of(monitor).last_checked_at, state_of(monitor).next_due_at) == (at, at + minutes(1))
