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

    status: str | None
    paused: bool = False


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


@dataclass(slots=True)
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
    gaps = apart(gaps)
    found = [Tally() for _ in windows]
    if not windows:
        return found
    at, last = windows[0].start, windows[-1].end
    interval = transitions[0].before if transitions else now
    index = 0
    for transition in [*transitions, Transition(last, now, now)]:
        end = max(transition.at, at)
        goes_down = transition.after.status == Verdict.DOWN and transition.before.status != Verdict.DOWN
        while index < len(windows) and windows[index].end <= at:
            index += 1
        for position in range(index, len(windows)):
            window, total = windows[position], found[position]
            if window.start > end:
                break
            seen = Span(max(at, window.start), min(end, window.end))
            if interval.status is not None and not interval.paused and seen.start < seen.end:
                length = seen.end - seen.start - sum((seen.overlap(gap) for gap in gaps), timedelta())
                total.observed += length
                if interval.status == Verdict.DOWN:
                    total.down += length
            if goes_down and window.start <= end < window.end:
                total.incidents += 1
        at, interval = end, transition.after
    return found


def apart(spans: Iterable[Span]) -> list[Span]:
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
