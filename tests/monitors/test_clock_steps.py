"""PostgreSQL's clock is set forward or back: due times, leases and deadlines follow."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from checks.spec import Verdict
from core import metrics
from monitors.metrics import CLOCK_STEPS
from monitors.models import Monitor, MonitorState, PingGap, SchedulerGap
from monitors.recording import record
from monitors.scheduling import Claim, claim_due, start_runs, tick
from monitors.selectors import last_tick
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, check_record, minutes, record_ping, state_of

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
STEPS = [3 * SECOND, minutes(10), timedelta(days=2)]


def steps() -> dict[str, float]:
    metrics.report()
    return {direction: count for (direction,), count in CLOCK_STEPS.read(metrics.read_levels()).items()}


def step(before: datetime, now: datetime) -> None:
    """Tick, and a second later tick again with another clock."""
    tick(before, idle_for=SECOND)
    tick(now, idle_for=SECOND, step=now - before - SECOND)


@pytest.mark.parametrize("by", STEPS)
def test_checks_go_on_after_it_was_set_back(by: timedelta) -> None:
    before = steps()
    monitor = MonitorFactory(up=True, interval_sec=60)
    wrong = NOON + by
    MonitorState.objects.update(next_due_at=wrong + minutes(1), last_checked_at=wrong, status_since=wrong)
    step(wrong, NOON + SECOND)
    assert last_tick() == NOON + SECOND
    state = state_of(monitor)
    assert state.next_due_at is not None
    assert NOON < state.next_due_at <= NOON + SECOND + minutes(1)
    assert (state.next_due_at - wrong) % minutes(1) == timedelta(), "the slots keep their phase"
    assert (state.last_checked_at, state.status_since) == (NOON + SECOND, NOON + SECOND)
    assert steps()["back"] == before["back"] + 1
    assert [claim.monitor_id for claim in claim_due(NOON + minutes(1) + SECOND, limit=10)] == [monitor.pk]


@pytest.mark.parametrize("by", STEPS)
def test_a_lease_ends_in_time_after_it_was_set_back(by: timedelta) -> None:
    monitor = MonitorFactory(up=True, interval_sec=60)
    wrong = NOON + minutes(1) + by
    assert claim_due(wrong, limit=10) == [Claim(monitor.pk, 2)]
    step(wrong, NOON + minutes(1))
    assert claim_due(NOON + minutes(2), limit=10) == [Claim(monitor.pk, 3, again=True)]


@pytest.mark.parametrize("by", STEPS)
def test_a_trigger_fires_again_after_it_was_set_back(by: timedelta) -> None:
    monitor = MonitorFactory(type="scheduler", interval_sec=60)
    wrong = NOON + by + minutes(1)
    (claim,) = claim_due(wrong, limit=10)
    assert start_runs([claim.key], now=wrong) == {claim.key}
    record([check_record(monitor, claim=claim.number, verdict=Verdict.UP, at=wrong)], now=wrong)
    step(wrong, NOON + minutes(1))
    (claim,) = claim_due(NOON + minutes(3), limit=10)
    assert start_runs([claim.key], now=NOON + minutes(3)) == {claim.key}


@pytest.mark.parametrize("by", STEPS)
def test_a_silent_heartbeat_is_missed_after_it_was_set_back(by: timedelta) -> None:
    monitor = MonitorFactory(heartbeat=True, interval_sec=60, grace_sec=60)
    record_ping(monitor.public_id, now=NOON + by)
    step(NOON + by, NOON + SECOND)
    assert record_ping(monitor.public_id, now=NOON + 2 * SECOND)
    state = state_of(monitor)
    assert state.last_ping_at == NOON + 2 * SECOND
    assert state.next_due_at == NOON + 2 * SECOND + minutes(2)


def test_a_schedule_is_due_in_time_after_it_was_set_back() -> None:
    monitor = MonitorFactory(type="scheduler", schedule="*/5 * * * *", timezone="UTC", created_at=NOON)
    wrong = NOON + timedelta(days=2)
    MonitorState.objects.update(next_due_at=wrong + minutes(5))
    step(wrong, NOON + SECOND)
    assert state_of(monitor).next_due_at == NOON + minutes(5)


@pytest.mark.parametrize("by", [timedelta(seconds=20), minutes(10), timedelta(days=2)])
def test_no_heartbeat_is_missed_because_it_was_set_forward(by: timedelta) -> None:
    before = steps()
    monitor = MonitorFactory(heartbeat=True, interval_sec=60, grace_sec=0)
    record_ping(monitor.public_id, now=NOON)
    now = NOON + timedelta(seconds=51) + by
    step(NOON + timedelta(seconds=50), now)
    state = state_of(monitor)
    assert state.next_due_at is not None
    assert state.next_due_at > now
    assert steps()["forward"] == before["forward"] + 1
    assert PingGap.objects.exists() or SchedulerGap.objects.exists()


@pytest.mark.parametrize("by", STEPS)
def test_a_running_trigger_is_not_lost_because_it_was_set_forward(by: timedelta) -> None:
    monitor = MonitorFactory(type="scheduler", interval_sec=60)
    (claim,) = claim_due(NOON + minutes(1), limit=10)
    start_runs([claim.key], now=NOON + minutes(1))
    step(NOON + minutes(1), NOON + minutes(1) + SECOND + by)
    assert claim_due(NOON + minutes(1) + 2 * SECOND + by, limit=10) == []
    assert Monitor.objects.get(pk=monitor.pk).enabled


@pytest.mark.parametrize("by", [*STEPS, *(-each for each in STEPS)])
def test_a_second_dispatcher_does_not_get_over_the_same_step(by: timedelta) -> None:
    before, now = steps(), NOON + SECOND + by
    monitor = MonitorFactory(type="scheduler", interval_sec=60)
    claim_due(NOON + minutes(1), limit=10)
    step(NOON, now)
    lease_end = state_of(monitor).next_due_at
    tick(now + SECOND / 2, idle_for=SECOND, step=by)
    assert state_of(monitor).next_due_at == lease_end
    assert sum(steps().values()) == sum(before.values()) + 1


def test_ticks_of_another_dispatcher_are_no_step() -> None:
    """The other process got all messages of ten seconds."""
    before = steps()
    for second in range(11):
        tick(NOON + second * SECOND, idle_for=SECOND)
    tick(NOON + timedelta(seconds=10.5), idle_for=10 * SECOND)
    assert steps() == before
    assert last_tick() == NOON + timedelta(seconds=10.5)
    assert not PingGap.objects.exists()


def test_a_slow_tick_is_no_step() -> None:
    before = steps()
    MonitorFactory(owner=UserFactory(), heartbeat=True)
    tick(NOON, idle_for=SECOND)
    tick(NOON + timedelta(seconds=20), idle_for=SECOND)
    assert steps() == before
    assert not PingGap.objects.exists()
