"""Count alerts and down time of outages, and compare two lists of outages. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from monitors.replay import Outage
from monitors.uptime.intervals import Span, apart

MAX_OUTAGES = 20
"""How many outages a difference lists of each side."""
_NEVER = datetime.max.replace(tzinfo=UTC)


class Noticed(NamedTuple):
    """An outage, and how many alerts said that the monitor is down: 0 if it was over before its maintenance."""

    outage: Outage
    alerts: int


class Difference(NamedTuple):
    """Outages that overlap in time and are not the same on both sides, oldest first."""

    stored: Sequence[Noticed]
    tried: Sequence[Noticed]


def alert_times(
    outages: Sequence[Outage], maintenance: Sequence[Span], *, calm: timedelta, changes: int, within: timedelta
) -> list[list[datetime]]:
    """Return the times of the alerts of each outage that say that the monitor is down, as `alerts.notify` sends them.

    An alert waits for the end of maintenance, and is not sent if the outage is over by then. An outage that was
    alerted about before maintenance gets another alert after it. `changes` of outages within a time begin a flapping
    spell, with one alert. Within it none is sent, and after `calm` time one if the monitor is down.
    """
    starts = [span.start for span in maintenance]

    def unsilenced(at: datetime) -> datetime:
        place = bisect_right(starts, at) - 1
        return max(maintenance[place].end, at) if place >= 0 else at

    found: list[list[datetime]] = []
    turns: list[datetime] = []  # confirmations and recoveries, oldest first
    settles_at: datetime | None = None  # the end of the flapping spell
    for outage in outages:
        times: list[datetime] = []
        ends, at = outage.resolved_at or _NEVER, unsilenced(outage.confirmed_at)
        turns.append(outage.confirmed_at)
        is_flapping = settles_at is not None and settles_at > outage.confirmed_at
        if not is_flapping and at < ends:
            times.append(at)
            is_flapping = len(turns) - bisect_right(turns, at - within) >= changes
        settles_at = outage.confirmed_at + calm if is_flapping else None
        if settles_at is not None and settles_at < ends:
            if (at := max([unsilenced(settles_at), *times])) < ends:
                times.append(at)
            settles_at = None
        for place in range(bisect_right(starts, times[0]) if times else len(starts), len(starts)):
            if maintenance[place].end >= ends:
                break
            if maintenance[place].end > times[-1]:
                times.append(maintenance[place].end)
        if outage.is_paused:
            settles_at = None
        elif outage.resolved_at is not None:
            turns.append(outage.resolved_at)
            settles_at = None if settles_at is None else outage.resolved_at + calm
        found.append(times)
    return found


def slow_alerts(
    slowed: Sequence[tuple[datetime, bool]], silent: Sequence[Span], span: Span, *, within: timedelta
) -> int:
    """Return how many alerts say that the monitor became slow: one in a time, none after an outage or in a silence."""
    silent, count, before = apart(silent), 0, None
    starts = [each.start for each in silent]
    for at, was_down in slowed:
        place = bisect_right(starts, at) - 1
        is_silent = place >= 0 and silent[place].end > at
        is_repeated = before is not None and before > at - within
        count += at >= span.start and not (was_down or is_silent or is_repeated)
        before = at
    return count


def down_time(outages: Sequence[Outage], unobserved: Sequence[Span], span: Span) -> timedelta:
    """Return how long the outages lasted within the span, without the time that was not observed."""
    total, ends = timedelta(), [each.end for each in unobserved]
    for outage in outages:
        start, end = max(outage.started_at, span.start), min(outage.resolved_at or span.end, span.end)
        total += max(end - start, timedelta())
        for each in unobserved[bisect_right(ends, start) :]:
            if each.start >= end:
                break
            total -= min(each.end, end) - max(each.start, start)
    return total


def differences(stored: Sequence[Noticed], tried: Sequence[Noticed]) -> list[Difference]:
    """Return the groups of outages that overlap and are not the same on both sides, newest first."""
    both = sorted(
        [(each.outage.started_at, side, each) for side, found in enumerate((stored, tried)) for each in found],
        key=lambda item: item[:2],
    )
    groups: list[tuple[list[Noticed], list[Noticed]]] = []
    until: datetime | None = None  # the end of the last group
    for started_at, side, each in both:
        if not groups or (until is not None and started_at >= until):
            groups.append(([], []))
            until = each.outage.resolved_at
        elif until is not None:
            until = None if each.outage.resolved_at is None else max(until, each.outage.resolved_at)
        groups[-1][side].append(each)
    return [Difference(one[:MAX_OUTAGES], two[:MAX_OUTAGES]) for one, two in reversed(groups) if one != two]
