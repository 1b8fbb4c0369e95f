"""Checks that change nothing are recorded by one statement, with the same columns as on the slow path."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from checks.results.models import CheckResult
from checks.spec import CheckOutcome, Verdict
from monitors import recording
from monitors.models import DnsAlert, DnsAnswer, DnsChange, Monitor, MonitorState, ScheduleSlots, StatusChange
from monitors.recording import fast_path
from monitors.recording.batch import CheckRecord
from tests.expressions import expressions
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, outcome

pytestmark = pytest.mark.django_db

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
SECOND = timedelta(seconds=1)

STATES = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["up", "slow", "down", None]),
        "fresh": st.sampled_from([False, False, False, True]),
        "failures": st.sampled_from([0, 0, 0, 1]),
        "passes": st.sampled_from([0, 0, 0, 1]),
        "failing_since": st.sampled_from([None, None, NOON - 5 * SECOND, NOON + 2 * SECOND]),
        "claim": st.sampled_from([7, 7, 7, 8]),
        "applied_claim": st.sampled_from([6, 6, 3, 7]),
        "claimed_at": st.sampled_from([NOON, NOON, None]),
        "cert_expires_at": st.sampled_from([None, NOON]),
    }
)
LATE = st.integers(-3, 400).map(lambda tenths: NOON + tenths * SECOND / 10) | st.just(NOON + 60 * SECOND)


def two_alike(state: dict[str, Any], interval_sec: int, muted_until: Any) -> list[Monitor]:
    user = UserFactory()
    made = [MonitorFactory(owner=user, interval_sec=interval_sec, recover_threshold=2) for _ in range(2)]
    Monitor.objects.filter(owner=user).update(interval_sec=interval_sec, muted_until=muted_until)
    MonitorState.objects.filter(monitor__owner=user).update(
        slot_at=NOON, next_due_at=NOON + 40 * SECOND, status_since=NOON - 60 * SECOND, **state
    )
    return made


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES, verdict=st.sampled_from([UP, UP, DOWN]), now=LATE, expression=expressions(), stored=st.booleans())
def test_both_ways_follow_a_schedule(
    state: dict[str, Any], verdict: Verdict, now: Any, expression: str, stored: bool
) -> None:
    user = UserFactory()
    short, long = (MonitorFactory(owner=user, type="scheduler", schedule=expression) for _ in range(2))
    MonitorState.objects.filter(monitor__owner=user).update(
        slot_at=NOON, next_due_at=NOON + 40 * SECOND, status_since=NOON - 60 * SECOND, **state
    )
    if not stored:
        ScheduleSlots.objects.all().delete()
    found = outcome(verdict, at=NOON + SECOND)
    recording.record([CheckRecord(short.pk, 7, 1, found)], now=now)
    with transaction.atomic():
        recording._move([CheckRecord(long.pk, 7, 1, found)], now=now)
    assert traces(short) == traces(long)


def traces(monitor: Monitor) -> tuple[Any, ...]:
    """Return everything that recording writes, without what identifies the monitor."""
    state = MonitorState.objects.filter(pk=monitor.pk).values().get()
    results = CheckResult.objects.filter(monitor_id=monitor.pk)
    changes = StatusChange.objects.filter(monitor=monitor)
    return (
        {name: value for name, value in state.items() if name != "monitor_id"},
        list(results.values_list("claim", "checked_at", "verdict", "latency_ms", "http_status", "detail")),
        list(changes.values_list("at", "before", "after", "claim", "failing_since", "reason_code")),
        list(DnsAnswer.objects.filter(monitor=monitor).values_list("config_version", "since", "records")),
        list(DnsChange.objects.filter(monitor=monitor).values_list("at", "added", "removed")),
        list(DnsAlert.objects.filter(monitor=monitor).values_list("records", "due_at")),
    )


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=STATES,
    verdict=st.sampled_from([UP, UP, SLOW, DOWN, DOWN]),
    now=LATE,
    interval_sec=st.sampled_from([1, 3, 10, 60, 86_400]),
    config_version=st.sampled_from([1, 1, 1, 2]),
    certificate=st.sampled_from([None, NOON + 60 * SECOND]),
    muted_until=st.sampled_from([None, NOON, NOON + 60 * SECOND]),
    answer=st.sampled_from([None, ("192.0.2.1",), ("192.0.2.2", "192.0.2.3")]),
)
@example(
    state={"status": "up", "fresh": False, "failures": 0, "passes": 0, "failing_since": None, "claim": 7}
    | {"applied_claim": 6, "claimed_at": NOON, "cert_expires_at": None},
    verdict=UP,
    now=NOON + 3 * SECOND,
    interval_sec=3,
    config_version=1,
    certificate=None,
    muted_until=None,
    answer=("192.0.2.2",),
)
def test_both_ways_leave_the_same(
    state: dict[str, Any],
    verdict: Verdict,
    now: Any,
    interval_sec: int,
    config_version: int,
    certificate: Any,
    muted_until: Any,
    answer: tuple[str, ...] | None,
) -> None:
    short, long = two_alike(state, interval_sec, muted_until)
    for monitor in (short, long):
        DnsAnswer.objects.create(
            monitor=monitor, owner_id=monitor.owner_id, config_version=1, since=NOON, records=["192.0.2.1"]
        )
    found: CheckOutcome = replace(outcome(verdict, at=NOON + SECOND), cert_expires_at=certificate, answer=answer)
    recording.record([CheckRecord(short.pk, 7, config_version, found)], now=now)
    with transaction.atomic():
        recording._move([CheckRecord(long.pk, 7, config_version, found)], now=now)
    assert traces(short) == traces(long)


@pytest.mark.parametrize("verdict", [UP, DOWN])
def test_the_same_verdict_again_goes_the_short_way(verdict: Verdict) -> None:
    monitor = MonitorFactory(up=True)
    MonitorState.objects.filter(pk=monitor.pk).update(
        status=verdict, failing_since=NOON if verdict is DOWN else None, claim=2, claimed_at=NOON, slot_at=NOON
    )
    record = CheckRecord(monitor.pk, 2, 1, outcome(verdict, at=NOON + SECOND))
    with transaction.atomic():
        fast_path.lock_states([monitor.pk])
        assert fast_path.record_unchanged([record], now=NOON + SECOND) == []
    assert CheckResult.objects.filter(monitor_id=monitor.pk).count() == 2
