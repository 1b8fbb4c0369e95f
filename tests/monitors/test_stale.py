"""Monitors whose checks do not end are shown as not checked everywhere, with the reason."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.spec import Verdict
from dashboard.monitors.listing import Listing, matching, tally
from dashboard.monitors.rows import rows_of
from monitors import operations
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.recording import record
from monitors.scheduling import claim_due, note_faults, postpone
from monitors.selectors import shown_status, status_of, uptimes
from monitors.services import update_monitor
from monitors.stale import LOST, NOT_STARTED, NOWHERE, count_stale, stale, stale_reason, stale_since
from monitors.uptime.daily import daily_uptimes, write_days
from projects.access import Caller
from statuspages.badges import create_badge, draw
from tests.factories import MonitorFactory, PlanFactory, UserFactory
from tests.helpers import NOON, check_record, examples
from tests.locations import shared

pytestmark = pytest.mark.django_db

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FAULT = "Pulsekeeper could not run this check: no name server could be reached."


def load(monitor: Monitor) -> Monitor:
    return Monitor.objects.select_related("state", "project").get(pk=monitor.pk)


def checked(monitor: Monitor, at: datetime, verdict: Verdict = Verdict.UP) -> None:
    """Claim and record a check, as dispatcher and worker do."""
    claim = next(claim for claim in claim_due(at, limit=100) if claim.monitor_id == monitor.pk)
    record(
        [check_record(monitor, claim=claim.number, verdict=verdict, at=at, config_version=claim.config_version)], now=at
    )


def grouped(now: datetime) -> list[tuple[str, int]]:
    connection.ensure_connection()
    return [(group.reason, group.monitors) for group in count_stale(connection.connection, now=now, most=1_000)]


TIMES = st.none() | st.integers(-900, 900).map(lambda seconds: NOON + timedelta(seconds=seconds))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=st.fixed_dictionaries(
        dict.fromkeys(("next_due_at", "slot_at", "claimed_at", "last_checked_at", "fault_since"), TIMES)
        | {"status": st.sampled_from(["up", "slow", "down", None])}
    ),
    made=st.sampled_from(
        [{}, {"type": "scheduler"}, {"type": "scheduler", "schedule": "*/5 * * * *"}, {"type": "heartbeat"}]
    ),
    enabled=st.booleans(),
    late=st.integers(-900, 2_000),
)
def test_one_definition_and_never_up(state: dict[str, Any], made: dict[str, Any], enabled: bool, late: int) -> None:
    now = NOON + timedelta(seconds=late)
    Monitor.objects.all().delete()  # of the previous example
    user = UserFactory()
    monitor = MonitorFactory(
        owner=user, interval_sec=60, **({"url": ""} if made.get("type") == "heartbeat" else {}), **made
    )
    Monitor.objects.filter(pk=monitor.pk).update(enabled=enabled)
    MonitorState.objects.filter(pk=monitor.pk).update(**state, fault=FAULT if state["fault_since"] else None)
    monitor = load(monitor)
    since = stale_since(monitor, now=now)
    assert list(Monitor.objects.filter(stale(now), owner=user)) == ([] if since is None else [monitor])
    assert Monitor.objects.annotate(shown=shown_status(now)).get(owner=user).shown == status_of(monitor, now=now)
    in_flight = state["fault_since"] is None and (
        state["claimed_at"] is not None or (state["next_due_at"] or now) > now
    )
    if not in_flight:
        assert len(grouped(now)) == (since is not None)
    (row,) = rows_of([monitor], now=now)
    listed = matching(Caller(user), Listing(), now=now).annotate(listed=F("standing")).values_list("listed", flat=True)
    assert list(listed) == [row.standing]
    if since is not None:
        assert since <= now - MINUTE
        assert row.stale
        assert row.standing in ("stale", "down")
        assert status_of(monitor, now=now) in (None, "down")


def test_a_worker_that_cannot_check() -> None:
    """For example without a name server: the attempt is repeated after each lease, and fails each time."""
    monitor = MonitorFactory(interval_sec=60, up=True)
    for minute in range(1, 4):
        [claim] = claim_due(NOON + minute * MINUTE, limit=10)
        note_faults({claim.key: FAULT})
    found = load(monitor)
    assert stale_since(found, now=NOON + 2 * MINUTE) is None
    assert stale_since(found, now=NOON + 3 * MINUTE) == NOON + MINUTE
    assert (stale_reason(found), status_of(found, now=NOON + 3 * MINUTE)) == (FAULT, None)
    assert grouped(NOON + 3 * MINUTE) == [(FAULT, 1)]
    checked(monitor, NOON + 4 * MINUTE)
    found = load(monitor)
    assert stale_since(found, now=NOON + 4 * MINUTE) is None
    assert (found.state.fault, found.state.fault_since, grouped(NOON + 4 * MINUTE)) == (None, None, [])


def test_no_worker_and_no_scheduler() -> None:
    lost, waiting = MonitorFactory(interval_sec=60, up=True), MonitorFactory(interval_sec=60, up=True)
    MonitorState.objects.filter(pk=waiting.pk).update(next_due_at=NOON + 2 * MINUTE)
    for minute in (1.0, 1.8):  # before the other is due
        claim_due(NOON + minute * MINUTE, limit=1)
    at = NOON + 6 * MINUTE
    assert {stale_reason(load(monitor)) for monitor in (lost, waiting)} == {LOST, NOT_STARTED}
    assert sorted(grouped(at)) == sorted([(LOST, 1), (NOT_STARTED, 1)])


def test_the_operator_is_not_notified_of_private_locations_that_are_offline() -> None:
    owner = UserFactory()
    shared("office", owner=owner)
    shared("fra")
    monitor = MonitorFactory(owner=owner, locations=["office"], interval_sec=60, created_at=NOON)
    MonitorState.objects.update(fault=NOWHERE, fault_since=NOON)
    late = NOON + HOUR
    assert stale_since(load(monitor), now=late) is not None
    assert grouped(late) == []
    MonitorState.objects.update(fault=FAULT)
    assert grouped(late) == [(FAULT, 1)], "it is ours"
    Monitor.objects.update(locations=["office", "fra"])
    MonitorState.objects.update(fault=NOWHERE)
    assert grouped(late) == [(NOWHERE, 1)], "the operator runs one of them"


def test_a_postponed_check_stays_late() -> None:
    """Its slot moves with each attempt, but it has not been checked since the first one."""
    monitor = MonitorFactory(interval_sec=60, up=True)
    at = NOON + MINUTE
    for _ in range(6):
        [claim] = claim_due(at, limit=10)
        postpone({claim.key: ("busy", 60.0)}, now=at)
        at += MINUTE
    assert stale_since(load(monitor), now=at) == NOON + MINUTE
    assert stale_reason(load(monitor)) == "busy"


def test_an_edit_does_not_make_it_up_again_and_a_pause_ends_it() -> None:
    monitor = MonitorFactory(interval_sec=60, up=True)
    caller, at = Caller(monitor.owner), NOON + HOUR
    update_monitor(caller, monitor.public_id, {"url": "http://127.0.0.1:9/other"}, now=at)
    assert stale_since(load(monitor), now=at) == NOON + MINUTE
    operations.pause([monitor.pk], now=at, caller=caller)
    assert stale_since(load(monitor), now=at + HOUR) is None
    kinds = list(StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("kind", "at"))
    assert kinds[1:] == [("stale", NOON + MINUTE), ("checked", at), ("paused", at)]
    operations.resume([monitor.pk], now=at + HOUR, caller=caller)
    assert stale_since(load(monitor), now=at + HOUR + MINUTE) is None


@pytest.mark.parametrize("way", ["interval", "timeout", "pause", "plan"])
def test_an_edit_after_which_the_check_is_not_late_does_not_make_the_time_observed(way: str) -> None:
    monitor = MonitorFactory(interval_sec=60, up=True)
    caller, at = Caller(monitor.owner), NOON + 2 * MINUTE + timedelta(seconds=50)
    if way == "plan":
        with transaction.atomic():
            operations.raise_intervals([monitor.owner], PlanFactory(min_interval_sec=HOUR.seconds), now=at)
    else:
        given = {
            "interval": {"interval_sec": 3_600},
            "timeout": {"timeout_ms": 60_000},
            "pause": {"enabled": False, "interval_sec": 86_400},
        }[way]
        update_monitor(caller, monitor.public_id, given, now=at)
    assert stale_since(load(monitor), now=at) is None
    observed = MINUTE
    if way != "pause":
        checked(monitor, at + MINUTE)
        observed += 2 * MINUTE
    history = daily_uptimes([load(monitor)], days=1, now=at + 2 * MINUTE)[monitor.pk]
    assert history.observed_ms == [observed / timedelta(milliseconds=1)]


def test_a_check_that_is_still_missing_after_an_edit_is_late_from_the_edit_on() -> None:
    monitor = MonitorFactory(interval_sec=60, up=True)
    at = NOON + 10 * MINUTE
    update_monitor(Caller(monitor.owner), monitor.public_id, {"interval_sec": 3_600}, now=at)
    assert stale_since(load(monitor), now=at + 2 * HOUR) == at
    checked(monitor, at + 2 * HOUR)
    history = daily_uptimes([load(monitor)], days=1, now=at + 2 * HOUR)[monitor.pk]
    assert history.observed_ms == [MINUTE / timedelta(milliseconds=1)]


def test_uptime_does_not_count_it_during_and_after() -> None:
    """Down for the first hour, up until 2:00, and no check until 12:00, when the monitor is down again."""
    start = NOON - 12 * HOUR  # a day of UTC begins
    monitor = MonitorFactory(interval_sec=60, created_at=start, down=True)
    checked(monitor, start + HOUR, Verdict.UP)
    MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=start + 2 * HOUR)
    StatusChange.objects.exclude(kind="status").delete()
    found = load(monitor)
    assert uptimes([found], now=NOON)[found.pk] == 50
    assert rows_of([found], now=NOON)[0].uptime == 50
    assert daily_uptimes([found], days=2, now=NOON)[found.pk].percent() == 50
    write_days(NOON + 24 * HOUR)
    assert daily_uptimes([found], days=2, now=NOON + 24 * HOUR)[found.pk].percents() == [50, None]
    checked(monitor, NOON + 24 * HOUR, Verdict.UP)
    found = load(monitor)
    assert uptimes([found], now=NOON + 25 * HOUR)[found.pk] == 100
    write_days(NOON + 36 * HOUR)
    assert daily_uptimes([found], days=2, now=NOON + 25 * HOUR)[found.pk].percents() == [50, 100]


def test_the_list_changes_with_the_staleness_of_a_monitor_that_is_down_and_with_its_reason() -> None:
    monitor = MonitorFactory(interval_sec=60, down=True)
    caller, state = Caller(monitor.owner), MonitorState.objects.filter(pk=monitor.pk)
    state.update(fault=FAULT, fault_since=NOON + MINUTE)
    seen = [tally(caller, Listing(), now=NOON + minutes * MINUTE).content for minutes in (2, 10, 11)]
    state.update(fault="busy")
    seen.append(tally(caller, Listing(), now=NOON + 11 * MINUTE).content)
    assert seen[1] == seen[2]
    assert len(set(seen)) == 3


def test_badges_say_unknown() -> None:
    monitor = MonitorFactory(interval_sec=60, up=True)
    badge = create_badge(Caller(monitor.owner), monitor.public_id, now=NOON)
    assert b"status: up" in draw(badge.key, "status", now=NOON)
    assert b"status: unknown" in draw(badge.key, "status", now=NOON + HOUR)
