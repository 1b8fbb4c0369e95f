"""The share of observed time that a monitor was not down (decision 35). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from checks.spec import Verdict


@dataclass(frozen=True, slots=True)
class Standing:
    """How a monitor stands during a stretch of time; `status` None is before the first check."""

    status: Verdict | None
    paused: bool = False

    @property
    def observed(self) -> bool:
        return self.status is not None and not self.paused


@dataclass(frozen=True, slots=True)
class Turn:
    """A moment at which the standing changed, and from what to what."""

    at: datetime
    before: Standing
    after: Standing


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime

    def overlap(self, other: Span) -> timedelta:
        return max(min(self.end, other.end) - max(self.start, other.start), timedelta())


def uptime_percent(
    window: Span, turns: Sequence[Turn], now_standing: Standing, gaps: Iterable[Span]
) -> float | None:
    """Percent, two decimals; None with nothing observed.

    `turns` are those within the window, oldest first; without any the present standing held throughout.
    `gaps` are the times in which Pulsekeeper itself was stopped; they do not overlap each other.
    """
    gaps = list(gaps)
    observed = down = timedelta()
    start, standing = window.start, turns[0].before if turns else now_standing
    for end, following in [*((turn.at, turn.after) for turn in turns), (window.end, now_standing)]:
        if standing.observed:
            stretch = Span(start, end)
            length = stretch.overlap(window) - sum((stretch.overlap(gap) for gap in gaps), timedelta())
            observed += length
            if standing.status is Verdict.DOWN:
                down += length
        start, standing = end, following
    if observed <= timedelta():
        return None
    return round(100 * (observed - down) / observed, 2)
