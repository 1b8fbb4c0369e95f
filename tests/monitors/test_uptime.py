"""Decision 35: the share of observed time that was not down."""

from __future__ import annotations

import pytest

from checks.spec import Verdict
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.selectors import uptime_sums
from monitors.uptime.intervals import Span
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
        pytest.param([(120, UP, DOWN)], DOWN, [], 100.0, id="the next change tells how it stood"),
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
