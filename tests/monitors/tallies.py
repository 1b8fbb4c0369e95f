"""The reference for uptime: one pass over the transitions of a monitor, in Python. PostgreSQL must agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from checks.spec import Verdict
from monitors.models import StatusChange
from monitors.uptime.intervals import Span, Tally, apart

Kind = StatusChange.Kind


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
                length = seen.end - seen.start - sum((_overlap(seen, gap) for gap in gaps), timedelta())
                total.observed += length
                if interval.status == Verdict.DOWN:
                    total.down += length
            if goes_down and window.start <= end < window.end:
                total.incidents += 1
        at, interval = end, transition.after
    return found


def _overlap(one: Span, other: Span) -> timedelta:
    return max(min(one.end, other.end) - max(one.start, other.start), timedelta())


def by_outage(transitions: Iterable[Transition]) -> list[Transition]:
    """Return the transitions with the start of each outage moved to its first failed check, like its incident.

    The status, and with it `uptime_24h`, goes down later: when the outage is confirmed.
    """
    return [
        transition if transition.began is None else replace(transition, at=transition.began)
        for transition in transitions
    ]


def transitions_since(start: datetime, monitor_ids: Sequence[int]) -> dict[int, list[Transition]]:
    """Return the transitions of each monitor that affect its uptime.

    Those between up and slow do not, and an unstable monitor has one for every check. The query has no upper bound: a
    worker's clock may be fast, and a transition in the next second shows the status until now. Rows are in the order
    of writing, under the lock of the monitor's state.
    """
    passing = (Verdict.UP, Verdict.SLOW)
    changes = (
        StatusChange.objects.filter(monitor__in=monitor_ids, at__gte=start)
        .exclude(kind=Kind.STATUS, before__in=passing, after__in=passing)
        .order_by("pk")
    )
    transitions: dict[int, list[Transition]] = defaultdict(list)
    for monitor_id, kind, at, before, after, failing_since in changes.values_list(
        "monitor_id", "kind", "at", "before", "after", "failing_since"
    ):
        transitions[monitor_id].append(
            Transition(
                at,
                StatusInterval(before, paused=kind in (Kind.RESUMED, Kind.CHECKED)),
                StatusInterval(after, paused=kind in (Kind.PAUSED, Kind.STALE)),
                began=failing_since if after == Verdict.DOWN else None,
            )
        )
    return transitions
