"""Uptime: the share of observed time in which the monitor was not down."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from checks.spec import Verdict
from dashboard.monitors.rows import rows_of
from monitors.models import DailyUptime, MaintenanceSpan, Monitor, MonitorState, StatusChange
from monitors.selectors import get_monitor_with_first_check, uptime_sums, uptimes
from monitors.uptime.daily import daily_uptime, daily_uptimes, write_days
from monitors.uptime.intervals import Span
from projects.access import Caller
from statuspages.badges import draw
from statuspages.models import Badge
from tests.factories import MonitorFactory, SchedulerGapFactory
from tests.helpers import NOON, keep_checked, minutes
from tests.monitors.tallies import StatusInterval, Transition, tally

pytestmark = pytest.mark.django_db
UP, DOWN, NONE = StatusInterval(Verdict.UP), StatusInterval(Verdict.DOWN), StatusInterval(None)
PAUSED_UP, PAUSED_DOWN = StatusInterval(Verdict.UP, paused=True), StatusInterval(Verdict.DOWN, paused=True)


WINDOW = Span(NOON, NOON + minutes(100))


def stored(
    transitions: list[tuple[int, StatusInterval, StatusInterval]], now: StatusInterval, gaps: list[tuple[int, int]]
) -> float | None:
    monitor = MonitorFactory()
    Monitor.objects.filter(pk=monitor.pk).update(enabled=not now.paused)
    MonitorState.objects.filter(pk=monitor.pk).update(status=now.status)
    StatusChange.objects.bulk_create(
        StatusChange(
            monitor=monitor,
            kind="paused" if after.paused else "resumed" if before.paused else "status",
            at=NOON + minutes(minute),
            before=before.status,
            after=after.status,
        )
        for minute, before, after in transitions
    )
    for start, end in gaps:
        SchedulerGapFactory(started_at=NOON + minutes(start), ended_at=NOON + minutes(end))
    keep_checked(WINDOW.end)
    found = Monitor.objects.select_related("state").get(pk=monitor.pk)
    return uptime_sums([found], [WINDOW], now=WINDOW.end)[monitor.pk].tallies[0].percent


@pytest.mark.parametrize(
    ("transitions", "now", "gaps", "expected"),
    [
        pytest.param([], UP, [], 100.0, id="up throughout"),
        pytest.param([], DOWN, [], 0.0, id="down throughout"),
        pytest.param([], NONE, [], None, id="never checked"),
        pytest.param([], PAUSED_UP, [], None, id="paused throughout"),
        pytest.param([(25, UP, DOWN)], DOWN, [], 25.0, id="down since"),
        pytest.param([(25, UP, DOWN), (35, DOWN, UP)], UP, [], 90.0, id="an outage of ten minutes"),
        pytest.param([(50, NONE, DOWN), (75, DOWN, UP)], UP, [], 50.0, id="observed from the first check on"),
        pytest.param([(20, DOWN, PAUSED_DOWN), (80, PAUSED_DOWN, DOWN), (90, DOWN, UP)], UP, [], 25.0, id="pause"),
        pytest.param([], UP, [(10, 60)], 100.0, id="our own gap is not observed"),
        pytest.param([(50, UP, DOWN)], DOWN, [(50, 75)], 66.67, id="nor is it down time"),
        pytest.param([], UP, [(-10, 110)], None, id="a gap throughout"),
        pytest.param([(50, UP, DOWN)], DOWN, [(40, 80), (60, 90), (20, 30)], 75.0, id="gaps that overlap"),
        pytest.param([(20, UP, DOWN), (10, DOWN, UP)], UP, [], 100.0, id="a clock that ran backwards"),
        pytest.param([(50, UP, DOWN), (130, DOWN, UP)], UP, [(120, 125)], 50.0, id="changes after the window"),
        pytest.param([(120, UP, DOWN)], DOWN, [], 100.0, id="the next change shows the status before it"),
        pytest.param([(1, UP, DOWN), (4, DOWN, UP)], UP, [(4, 100)], 25.0, id="four minutes observed"),
    ],
)
def test_uptime(
    transitions: list[tuple[int, StatusInterval, StatusInterval]],
    now: StatusInterval,
    gaps: list[tuple[int, int]],
    expected: float | None,
) -> None:
    changes = [Transition(NOON + minutes(minute), before, after) for minute, before, after in transitions]
    silent = [Span(NOON + minutes(start), NOON + minutes(end)) for start, end in gaps]
    assert tally([WINDOW], changes, now, silent)[0].percent == expected
    assert stored(transitions, now, gaps) == expected


def young(now: datetime, *, checked_until: datetime) -> Monitor:
    """Return a monitor of 28 minutes, the first 20 in maintenance, that was down from minute 25 (failing: 24) to 26."""
    start = now - minutes(28)
    monitor = MonitorFactory(created_at=start)
    MonitorState.objects.filter(pk=monitor.pk).update(status=Verdict.UP)
    for minute, before, after, began in (
        (0, None, Verdict.UP, None),
        (25, Verdict.UP, Verdict.DOWN, 24),
        (26, Verdict.DOWN, Verdict.UP, None),
    ):
        StatusChange.objects.create(
            monitor=monitor,
            at=start + minutes(minute),
            before=before,
            after=after,
            failing_since=None if began is None else start + minutes(began),
        )
    MaintenanceSpan.objects.create(monitor=monitor, started_at=start, ended_at=start + minutes(20))
    keep_checked(checked_until)
    return Monitor.objects.select_related("state", "project").get(pk=monitor.pk)


def test_all_periods_of_a_young_monitor_have_the_same_uptime() -> None:
    """In each period maintenance counts as observed time, and the status was down for one minute of 28."""
    monitor = young(NOON, checked_until=NOON)
    Badge.objects.create(monitor=monitor, key="bdg_1", created_at=NOON)
    found = uptimes([monitor], now=NOON)[monitor.pk], rows_of([monitor], now=NOON)[0].uptime
    history = daily_uptimes([monitor], days=90, now=NOON, with_status=True)[monitor.pk].by_status
    assert history is not None
    assert [*found, *(history.percent(days) for days in (7, 30, 90))] == [96.43] * 5
    for name in ("uptime-24h", "uptime-7d", "uptime-30d", "uptime-90d"):
        assert "96.43%" in draw("bdg_1", name, now=NOON).decode()
    assert daily_uptime(monitor, days=1, now=NOON)[0].uptime == 75.0, "2 minutes of 8: without maintenance"
    found_again = get_monitor_with_first_check(Caller(monitor.owner), monitor.public_id)
    assert found_again.first_check_at == NOON - minutes(28)


def test_stored_days_keep_both_definitions() -> None:
    monitor = young(NOON, checked_until=NOON + timedelta(days=2))
    today = NOON + timedelta(hours=13)

    def percents(now: datetime) -> list[float | None]:
        history = daily_uptimes([monitor], days=7, now=now, with_status=True)[monitor.pk]
        assert history.by_status is not None
        return [history.percents()[-2], history.by_status.percents()[-2]]

    expected = percents(today)
    assert write_days(today) > 0
    stored = DailyUptime.objects.get(day=NOON.date())
    assert (stored.status_observed_ms, stored.status_down_ms) == (stored.observed_ms + 20 * 60_000, 60_000)
    assert percents(today) == expected
    DailyUptime.objects.update(status_observed_ms=None, status_down_ms=None)  # as written by an older version
    assert percents(today) == [expected[0]] * 2
    write_days(today + timedelta(days=1))
    assert percents(today) == expected
