"""Decision 35: the share of observed time that was not down."""

from __future__ import annotations

import pytest

from checks.spec import Verdict
from monitors.uptime.intervals import Span, StatusInterval, Transition, tally
from tests.helpers import NOON, minutes

UP, DOWN, NONE = StatusInterval(Verdict.UP), StatusInterval(Verdict.DOWN), StatusInterval(None)
PAUSED_UP, PAUSED_DOWN = StatusInterval(Verdict.UP, paused=True), StatusInterval(Verdict.DOWN, paused=True)


def percent(
    *transitions: tuple[int, StatusInterval, StatusInterval],
    now: StatusInterval,
    gaps: list[tuple[int, int]] | None = None,
) -> float | None:
    """Of a window of 100 minutes from NOON on."""
    return tally(
        [Span(NOON, NOON + minutes(100))],
        [Transition(NOON + minutes(minute), before, after) for minute, before, after in transitions],
        now,
        [Span(NOON + minutes(start), NOON + minutes(end)) for start, end in gaps or []],
    )[0].percent


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
    assert percent(*transitions, now=now, gaps=gaps) == expected
