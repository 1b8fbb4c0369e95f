"""The evaluation of benchmarks/neighbours.py: lateness and changes from stored rows, and limits of figures."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from accounts.models import User
from benchmarks.fairness import audit
from benchmarks.fairness.figures import Observed, Sample, is_within_limits, percentile, web_limit_mib, worst
from benchmarks.fairness.rows import ROWS
from benchmarks.fairness.targets import Timetable
from benchmarks.fairness.tenants import INTERVAL_SEC, MIX, SWITCHING, Quiet, Watched
from benchmarks.fairness.watching import Alert
from benchmarks.neighbours import ALL, parse, plan
from checks.results.models import CheckResult
from core.clock import utc_now
from monitors.models import Monitor, StatusChange
from tests.factories import MonitorFactory, UserFactory

pytestmark = pytest.mark.django_db


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@pytest.fixture
def owner() -> User:
    return UserFactory()


@pytest.fixture
def monitor(owner: User) -> Monitor:
    return MonitorFactory(owner=owner)


def quiet(owner: User, monitor: Monitor) -> Quiet:
    watched = Watched(1, "http", monitor.pk, monitor.public_id, INTERVAL_SEC, switches=True)
    return Quiet(owner, [watched], token="", cookie="")


def test_each_slot_is_checked_by_the_first_result_after_it(monitor: Monitor) -> None:
    """A result that is late by a whole interval counts for both slots, and is late for the first."""
    start = utc_now() - seconds(60)
    for claim, at in enumerate((1.0, 13.0), 1):
        CheckResult.objects.create(
            monitor_id=monitor.pk, checked_at=start + seconds(at), claim=claim, verdict="up", latency_ms=1
        )
    found = audit.lateness(([monitor.pk], [start]), start.timestamp(), start.timestamp() + 20)
    assert [round(sample.at - start.timestamp()) for sample in found] == [0, 5, 10, 15]
    taken = [sample.taken for sample in found]
    assert taken[:3] == [pytest.approx(1), pytest.approx(8), pytest.approx(3)]
    assert taken[3] >= 45, "late until now"


def change(monitor: Monitor, at: datetime, before: str | None, after: str) -> None:
    StatusChange.objects.create(monitor=monitor, at=at, before=before, after=after)


def test_changes_are_compared_with_switches(owner: User, monitor: Monitor) -> None:
    now = utc_now()
    after = audit.last_change()
    change(monitor, now, None, "up")
    change(monitor, now + seconds(1), "up", "down")
    change(monitor, now + seconds(2), "down", "up")
    change(monitor, now + seconds(3), "up", "slow")
    change(monitor, now + seconds(6), "slow", "down")
    tenant, at = quiet(owner, monitor), now.timestamp()
    alerts = [Alert(at + 1.5, 1, up=False), Alert(at + 8, 1, up=False), Alert(at + 7, 2, up=False)]
    switched = audit.compare(tenant, [(at + 4, 1, False)], alerts, after=after, now=at + 9)
    assert (len(switched.false), switched.missed, switched.waiting) == (2, [], 0)
    assert [sample[:2] for sample in switched.alerts] == [pytest.approx((at + 6, 2))]
    untold = audit.compare(tenant, [(at + 4, 1, False)], [], after=after, now=at + 9)
    assert untold.waiting == 1
    assert untold.alerts[0].taken == pytest.approx(3)
    missed = audit.compare(tenant, [(at + 7, 1, False)], alerts, after=after, now=at + 9)
    assert (len(missed.false), len(missed.missed), missed.alerts) == (3, 1, [])


def test_limits() -> None:
    fine = {kind: [Sample(10.0, 0.5)] for kind in ("check", "ping", "page", "alert")}
    kept = Observed(fine).figures() | {"web_peak_mib": web_limit_mib(), "silent": 0, "restarts": 0}
    assert is_within_limits(kept)
    for name, value in {
        "worst_check_late_s": 5.1,
        "worst_ping_ms": 1001,
        "worst_page_ms": 1001,
        "worst_alert_s": 10.1,
        "false_changes": 1,
        "missed_changes": 1,
        "web_peak_mib": web_limit_mib() + 1,
    }.items():
        assert not is_within_limits(kept | {name: value}), name
        assert not is_within_limits(worst([kept, kept | {name: value}, kept])), name
    late = Observed(fine | {"page": [Sample(30.0, 4.0), Sample(20.0, 1.5)], "alert": [Sample(5.0, 11.0)]})
    assert list(late.broken()) == [21.0, 15.0]
    assert percentile([Sample(0, value) for value in range(1, 201)], 99) == 198
    assert percentile([Sample(0, 7.0)], 99) == 7.0


def test_timetable() -> None:
    timetable = Timetable()
    timetable.add([(20.0, 1, True), (10.0, 1, False)])
    timetable.add([(30.0, 1, False)])
    assert [timetable.is_up(1, at) for at in (5.0, 10.0, 19.0, 20.0, 30.0)] == [True, False, False, True, False]
    assert timetable.is_up(2, 30.0)


def test_the_plan_has_every_row_at_its_levels() -> None:
    given = parse([])
    played = [(name, level) for name, _, level in plan(given.rows, given.levels)]
    assert played[0] == ("quiet", 0)
    assert played[-1] == (ALL, 100)
    for name, row in ROWS.items():
        assert [level for each, level in played if each == name] == ([1, 10, 100] if row.by == "accounts" else [1, 10])
        assert row.resource
    assert sum(MIX.values()) == 60
    assert all(count <= MIX[kind] for kind, count in SWITCHING.items())
    with pytest.raises(SystemExit):
        parse(["--rows", "none"])
