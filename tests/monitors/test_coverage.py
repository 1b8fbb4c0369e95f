"""Coverage: which monitors have a result that is due by their plan."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from checks.spec import Verdict
from core.db import separate_connection
from locations.models import Agent
from monitors.coverage import HEARTBEAT_LATE_SEC, LATE_SEC, Coverage, coverage
from monitors.models import Monitor, MonitorState, SchedulerGap
from monitors.operations import pause, resume
from monitors.recording import record
from monitors.scheduling import claim_due
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, check_record, minutes, record_ping
from tests.locations import add_agent, shared

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)
TIMEOUT = timedelta(seconds=10)
LATE = TIMEOUT + timedelta(seconds=LATE_SEC)


def missing(now: datetime) -> int:
    with separate_connection(patience_sec=10) as database:
        found = coverage(database, now=now)
    assert found.monitors == Monitor.objects.filter(enabled=True).count()
    return found.missing


def misses_from(moment: datetime) -> bool:
    """Return whether the only monitor lacks a result just after this time, and not just before."""
    return (missing(moment), missing(moment + SECOND)) == (0, 1)


def test_without_monitors_nothing_is_missing() -> None:
    with separate_connection(patience_sec=10) as database:
        assert coverage(database, now=NOON) == Coverage(0, 0)
    assert Coverage(0, 0).share == 1.0
    assert Coverage(4, 1).share == 0.75


def test_a_monitor_has_an_interval_its_timeout_and_a_little_more() -> None:
    MonitorFactory(up=True, interval_sec=60, timeout_ms=10_000)
    assert misses_from(NOON + minutes(1) + LATE)


def test_it_does_not_go_by_what_the_scheduler_believes() -> None:
    MonitorFactory(up=True, interval_sec=60, timeout_ms=10_000)
    later = NOON + timedelta(days=2)
    MonitorState.objects.update(next_due_at=later, claimed_at=None, fault=None)
    assert misses_from(NOON + minutes(1) + LATE)
    MonitorState.objects.update(claimed_at=later, slot_at=later)
    assert misses_from(NOON + minutes(1) + LATE)


def test_a_monitor_that_was_never_checked_counts_from_its_creation() -> None:
    MonitorFactory(interval_sec=60, timeout_ms=10_000, created_at=NOON)
    MonitorState.objects.update(next_due_at=None, claimed_at=None)
    assert misses_from(NOON + minutes(1) + LATE)


def test_a_paused_monitor_is_left_out_and_counts_again_when_it_is_resumed() -> None:
    monitor = MonitorFactory(up=True, interval_sec=60, timeout_ms=10_000)
    pause([monitor.pk], now=NOON + SECOND)
    assert missing(NOON + minutes(60)) == 0
    resume([monitor.pk], now=NOON + minutes(60))
    assert misses_from(NOON + minutes(61) + LATE)


def test_without_an_agent_of_its_private_locations_a_monitor_lacks_nothing() -> None:
    owner = UserFactory()
    office = shared("office", owner=owner)
    monitor = MonitorFactory(owner=owner, up=True, locations=["office"], interval_sec=60, timeout_ms=10_000)
    late = NOON + minutes(1) + LATE + SECOND
    assert missing(late) == 0, "no agent has joined"
    agent = add_agent(office, seen=late - timedelta(seconds=29))
    assert missing(late) == 1
    Agent.objects.filter(pk=agent.pk).update(network_down=True)
    assert missing(late) == 0
    shared("fra")
    Monitor.objects.filter(pk=monitor.pk).update(locations=["office", "fra"])
    assert missing(late) == 1, "the operator runs one of them"


def test_a_heartbeat_counts_from_its_deadline_until_it_is_judged() -> None:
    monitor = MonitorFactory(heartbeat=True, interval_sec=60, grace_sec=30)
    record_ping(monitor.public_id, now=NOON)
    deadline = NOON + minutes(1.5)
    assert misses_from(deadline + timedelta(seconds=HEARTBEAT_LATE_SEC))
    MonitorState.objects.update(status="down")
    assert missing(deadline + minutes(60)) == 0
    MonitorState.objects.update(status="up", armed_at=deadline + minutes(5))
    assert misses_from(deadline + minutes(5) + timedelta(seconds=HEARTBEAT_LATE_SEC))


def test_a_heartbeat_with_a_schedule_counts_from_its_time() -> None:
    monitor = MonitorFactory(heartbeat=True, schedule="0 * * * *", timezone="UTC", grace_sec=30)
    record_ping(monitor.public_id, now=NOON + minutes(1))
    assert misses_from(NOON + minutes(60) + timedelta(seconds=30 + HEARTBEAT_LATE_SEC))


def test_a_heartbeat_that_was_never_pinged_is_left_out() -> None:
    MonitorFactory(heartbeat=True, created_at=NOON)
    with separate_connection(patience_sec=10) as database:
        assert coverage(database, now=NOON + timedelta(days=9)) == Coverage(0, 0)


def test_a_trigger_counts_from_its_time_and_not_while_the_scheduler_stood_still() -> None:
    monitor = MonitorFactory(
        type="scheduler", schedule="0 * * * *", timezone="UTC", created_at=NOON + SECOND, timeout_ms=10_000
    )
    (claim,) = claim_due(NOON + minutes(60), limit=10)
    at = NOON + minutes(60) + SECOND
    record([check_record(monitor, claim=claim.number, verdict=Verdict.UP, at=at)], now=at)
    assert misses_from(NOON + minutes(120) + LATE)
    SchedulerGap.objects.create(started_at=NOON + minutes(110), ended_at=NOON + minutes(170))
    assert misses_from(NOON + minutes(180) + LATE)
