"""Uptime: the share of observed time in which a monitor was not down. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from checks.spec import Verdict


@dataclass(frozen=True, slots=True)
class StatusInterval:
    """The status of a monitor during a period. `status` is None before the first check."""

    status: Verdict | None
    paused: bool = False

    @property
    def observed(self) -> bool:
        return self.status is not None and not self.paused


@dataclass(frozen=True, slots=True)
class Transition:
    """A change from one status to another, and its time. `began`: the first failed check of an outage."""

    at: datetime
    before: StatusInterval
    after: StatusInterval
    began: datetime | None = None


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime

    def overlap(self, other: Span) -> timedelta:
        return max(min(self.end, other.end) - max(self.start, other.start), timedelta())


@dataclass(frozen=True, slots=True)
class Tally:
    """The totals of a window: observed time, observed downtime, and the number of outages that began."""

    observed: timedelta = timedelta()
    down: timedelta = timedelta()
    incidents: int = 0

    @property
    def percent(self) -> float | None:
        return percent(self.observed, self.down)


def percent(observed: Any, down: Any) -> float | None:
    """Return the uptime in percent with two decimals, or None if nothing was observed. Takes timedeltas or numbers."""
    return round(100 * (observed - down) / observed, 2) if observed else None


def tally(
    windows: Sequence[Span], transitions: Sequence[Transition], now: StatusInterval, gaps: Iterable[Span]
) -> list[Tally]:
    """Return the tally of each window, in one pass. The windows do not overlap and are ordered, oldest first.

    `transitions` begin with the first window's start, in the order of writing. The clocks of workers and web processes
    differ a little: a transition earlier than the previous one counts at the time of that one. Transitions after the
    last window show the status before them; without any, `now` was the status throughout. `gaps` are the periods in
    which Pulsekeeper itself was stopped.
    """
    gaps = _apart(gaps)
    found = [Tally() for _ in windows]
    if not windows:
        return found
    at, last = windows[0].start, windows[-1].end
    interval = transitions[0].before if transitions else now
    index = 0
    for transition in [*transitions, Transition(last, now, now)]:
        end = max(transition.at, at)
        goes_down = transition.after.status is Verdict.DOWN and transition.before.status is not Verdict.DOWN
        while index < len(windows) and windows[index].end <= at:
            index += 1
        for position in range(index, len(windows)):
            window = windows[position]
            if window.start > end:
                break
            found[position] = _add(found[position], window, Span(at, end), interval, gaps)
            if goes_down and window.start <= end < window.end:
                found[position] = replace(found[position], incidents=found[position].incidents + 1)
        at, interval = end, transition.after
    return found


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, so that no time is subtracted twice."""
    apart: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if apart and span.start <= apart[-1].end:
            apart[-1] = Span(apart[-1].start, max(apart[-1].end, span.end))
        else:
            apart.append(span)
    return apart


def by_outage(transitions: Iterable[Transition]) -> list[Transition]:
    """Return the transitions with the start of each outage moved to its first failed check, like its incident.

    The status, and with it `uptime_24h`, goes down later: when the outage is confirmed.
    """
    return [
        transition if transition.began is None else replace(transition, at=transition.began)
        for transition in transitions
    ]


def _add(so_far: Tally, window: Span, stretch: Span, interval: StatusInterval, gaps: Sequence[Span]) -> Tally:
    if not interval.observed:
        return so_far
    seen = Span(max(stretch.start, window.start), min(stretch.end, window.end))
    if seen.end <= seen.start:
        return so_far
    length = seen.end - seen.start - sum((seen.overlap(gap) for gap in gaps), timedelta())
    down = length if interval.status is Verdict.DOWN else timedelta()
    return replace(so_far, observed=so_far.observed + length, down=so_far.down + down)
