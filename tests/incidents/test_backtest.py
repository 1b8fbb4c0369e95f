"""Backtests against what recording, incidents and alerts really made of the same checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from alerts.models import AlertChannel
from checks.results.selectors import history_of
from checks.spec import CheckOutcome, Verdict
from incidents import backtest, consuming
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from incidents.windows import note_maintenance
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.operations import mute_for, pause, resume
from monitors.recording import record
from monitors.recording.batch import CheckRecord, lock_batch
from monitors.replay import Replay, replay
from monitors.scheduling import claim_due
from monitors.state import Policy, Status, advance
from tests.alerts.drivers import Drive, make_channel
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, minutes, outcome

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
SLOW_MS = 100
MOST = NOON + timedelta(days=1)


@dataclass(frozen=True)
class Check:
    """A check that ends `after` seconds after the previous event. `confirmed`: what other locations saw."""

    after: int
    latency_ms: int | None
    """None: it failed."""
    confirmed: bool | None = None


@dataclass(frozen=True)
class Lost:
    """A claim whose failure is recorded after the next check."""


@dataclass(frozen=True)
class Mute:
    minutes: int


@dataclass(frozen=True)
class Pause:
    minutes: int


LATENCIES = st.sampled_from([None, None, None, 20, 20, 99, 100, 250])
CHECK = st.builds(Check, st.sampled_from([20, 60, 60, 90]), LATENCIES)
EVENT = st.one_of(
    *[CHECK] * 8,
    st.builds(Check, st.just(60), st.none(), st.booleans()),
    st.builds(Lost),
    st.builds(Mute, st.sampled_from([0, 1, 4])),
    st.builds(Pause, st.integers(1, 5)),
)
EVENTS = st.lists(EVENT, min_size=20, max_size=60)
THRESHOLDS = st.fixed_dictionaries(
    {
        "fail_threshold": st.integers(1, 4),
        "recover_threshold": st.integers(1, 3),
        "slow_ms": st.sampled_from([0, 50, SLOW_MS, 1_000]),
        "confirmation_sec": st.sampled_from([None, None, 0, 120]),
    }
)


def outcome_of(check: Check, at: datetime, *, slow_ms: int) -> CheckOutcome:
    if check.latency_ms is None:
        return outcome(DOWN, at=at)
    found = outcome(SLOW if check.latency_ms >= slow_ms else UP, at=at, latency_ms=check.latency_ms)
    if found.verdict is SLOW:
        found.detail = "Slow."
    return found


def play(monitor: Monitor, events: Sequence[Any]) -> datetime:
    """Do all of it to the monitor by the services of production. Return the time of the end."""
    now, late = NOON, list[tuple[int, int]]()
    with time_machine.travel(now, tick=False) as clock:
        for event in events:
            now += timedelta(seconds=getattr(event, "after", 5))
            clock.move_to(now)
            if isinstance(event, Mute):
                mute_for([monitor.pk], minutes=event.minutes, now=now)
            elif isinstance(event, Pause):
                pause([monitor.pk], now=now)
                now += minutes(event.minutes)
                clock.move_to(now)
                resume([monitor.pk], now=now)
            else:
                MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=now, claimed_at=None)
                (claim,) = [one for one in claim_due(now, limit=10) if one.monitor_id == monitor.pk]
                version = Monitor.objects.get(pk=monitor.pk).config_version
                if isinstance(event, Lost):
                    late.append((claim.number, version))
                    continue
                found = outcome_of(event, now, slow_ms=monitor.slow_ms)
                new = CheckRecord(monitor.pk, claim.number, version, found, confirmed=event.confirmed)
                if event.confirmed is None:
                    record([new], now=now)
                else:
                    settle(new, now=now)
                at = now + timedelta(seconds=1)
                record([CheckRecord(monitor.pk, *key, outcome(DOWN, at=at)) for key in late], now=now)
                late.clear()
    consuming.consume(now, slow=lambda _: None)
    return now + timedelta(seconds=1)


def settle(one: CheckRecord, *, now: datetime) -> None:
    """Record a failure about which other locations have answered."""
    with transaction.atomic():
        batch = lock_batch([one.monitor_id])
        batch.settle([one], now=now)
        batch.write()


def incidents_of(monitor: Monitor) -> list[tuple[Any, ...]]:
    found = Incident.objects.filter(monitor=monitor).order_by("pk")
    return [
        (one.started_at, one.confirmed_at, one.resolved_at, one.resolution == "paused", one.reason_code)
        for one in found
    ]


def outages_of(side: backtest.Side) -> list[tuple[Any, ...]]:
    return [
        (each.started_at, each.confirmed_at, each.resolved_at, each.is_paused, each.reason_code)
        for each in (noticed.outage for noticed in side.noticed)
    ]


def run(monitor: Monitor, now: datetime, **given: Any) -> backtest.Backtest:
    return backtest.backtest(Monitor.objects.select_related("state").get(pk=monitor.pk), given, now=now)


@pytest.mark.django_db
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, THRESHOLDS, THRESHOLDS)
def test_it_is_what_recording_makes_of_the_same_checks(
    events: list[Any], own: dict[str, Any], other: dict[str, Any]
) -> None:
    """Of two monitors with the same checks, a backtest has the incidents of one as stored, of the other as tried."""
    user = UserFactory()
    MonitorState.objects.update(next_due_at=None)  # ignore the monitors of earlier examples
    monitors = [MonitorFactory(owner=user, **thresholds) for thresholds in (own, other)]
    for monitor in monitors:
        end = play(monitor, events)
    for monitor, twin, given_ in zip(monitors, reversed(monitors), (other, own), strict=True):
        found = run(monitor, end, **given_)
        assert outages_of(found.stored) == incidents_of(monitor)
        assert outages_of(found.tried) == incidents_of(twin)
        assert (found.differences_total == 0) == (found.stored.noticed == found.tried.noticed)
        became = StatusChange.objects.filter(monitor=monitor, kind="status", after=SLOW).order_by("pk")
        replayed = replay_of(monitor, end)
        assert replayed.slowed == [(one.at, one.before == DOWN) for one in became]
    assert run(monitors[0], end).differences == []


def replay_of(monitor: Monitor, end: datetime) -> Replay:
    """Replay the monitor's own settings from the beginning, and return the whole of what it found."""
    own = backtest.Thresholds(*(getattr(monitor, name) for name in backtest.THRESHOLDS))
    found = own.replay(monitor, Status())
    past = backtest._past_of(Monitor.objects.select_related("state").get(pk=monitor.pk), NOON, end, now=end)
    replay(history_of(monitor.pk, NOON, end), past.events, [found])
    return found


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from([UP, SLOW, DOWN]), max_size=20), THRESHOLDS, st.booleans())
def test_what_is_skipped_changes_nothing(verdicts: list[Verdict], given_: dict[str, Any], fresh: bool) -> None:
    """`advance` returns the same status for a check that `Replay` skips."""
    confirmation = given_["confirmation_sec"]
    policy = Policy(
        given_["fail_threshold"],
        given_["recover_threshold"],
        confirmation=None if confirmation is None else timedelta(seconds=confirmation),
    )
    status, at = Status(fresh=fresh), NOON
    for verdict in verdicts:
        unchanged = Replay(policy, 0, status)._unchanged()
        if unchanged is not None:
            assert advance(status, outcome(unchanged, at=at), policy) == (status, None)
            muted = replace(policy, muted_until=at + minutes(1))
            assert advance(status, outcome(unchanged, at=at), muted) == (status, None)
        status, _ = advance(status, outcome(verdict, at=at), policy)
        at += minutes(1)


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    make_channel(user)
    return user


def announced(monitor: Monitor) -> int:
    """Return how many alerts said that the monitor is down."""
    events = IncidentEvent.objects.filter(type=IncidentEvent.Type.ANNOUNCED, incident__monitor=monitor)
    return sum(kind in ("down", "still_down", "flapping") for kind in events.values_list("data__news", flat=True))


# Long runs of either kind, or all of it would be flapping.
RUNS = st.lists(st.tuples(st.sampled_from([UP, DOWN]), st.sampled_from([1, 1, 2, 3, 20, 30])), min_size=4, max_size=12)
WINDOWS = st.lists(st.tuples(st.integers(1, 60), st.integers(5, 40)), max_size=2)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS, WINDOWS)
def test_alerts_are_those_that_were_sent(owner: User, runs: list[Any], windows: list[tuple[int, int]]) -> None:
    """Once a minute a check, and a tick: alerts, those after maintenance, and those of flapping are counted."""
    for model in (Incident, MaintenanceWindow):  # of earlier examples
        model.objects.all().delete()
    drive = Drive()
    monitor = drive.monitor(owner)
    for start, length in windows:
        times = NOON + minutes(start), NOON + minutes(start + length)
        names = ("starts_at", "ends_at", "current_starts_at", "current_ends_at")
        MaintenanceWindow.objects.create(
            owner=owner, created_at=NOON, name="Upgrade", all_monitors=True, **dict(zip(names, times * 2, strict=True))
        )
    verdicts = [verdict for verdict, length in runs for _ in range(length)]
    for minute, verdict in enumerate(verdicts, 1):
        now = NOON + minutes(minute)
        drive.check(monitor, verdict, now)
        note_maintenance(now)
        drive.tick(now)
    assert run(monitor, now + timedelta(seconds=1)).stored.alerts == announced(monitor)
