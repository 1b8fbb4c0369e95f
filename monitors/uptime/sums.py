"""Add up observed time, downtime and outages of monitors in PostgreSQL.

A target that fails every other check makes a transition a minute. For an account of a thousand such monitors, a day has
1.4 million: too many to read. PostgreSQL reads each transition once; its result has a row per monitor and window in
which something changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from core.bulk import array
from monitors.uptime.intervals import Span, Tally, apart

# Transitions between up and slow do not count, and an unstable monitor has one for every check. The reads have no upper
# bound: a worker's clock may be ahead, and a transition in the next second shows the status until now. The
# order is the order of writing, under the lock of the monitor's state; a transition earlier than the previous one
# counts at the time of that one.
#
# Row 0 of a monitor is the status before its first transition. `stale` are transitions that are stored only later, and
# end the observed time. Windows and silent periods cut the time into parts; most intervals are within one part. With
# OFFSET 0, PostgreSQL evaluates an expression once and not at each use, which saves a fifth of the time.
_SUMS = """
    WITH given AS (
        SELECT id AS monitor_id, times
          FROM unnest(%(ids)s::bigint[], %(cuts)s::int[]) AS given (id, cut)
          JOIN (SELECT number, array_agg(time ORDER BY time) AS times
                  FROM unnest(%(numbers)s::int[], %(times)s::timestamptz[]) AS cut (number, time)
                 GROUP BY number) AS cut ON number = cut
    ), change AS (
        SELECT monitor_id, id, {at} AS at,
               CASE WHEN kind NOT IN ('resumed', 'checked') THEN before END AS before,
               CASE WHEN kind NOT IN ('paused', 'stale') THEN after END AS after,
               after = 'down' AND before IS DISTINCT FROM 'down' AS goes_down
          FROM monitors_statuschange
         WHERE monitor_id = ANY (%(ids)s::bigint[]) AND at >= %(start)s
           AND NOT (kind = 'status' AND coalesce(before IN ('up', 'slow') AND after IN ('up', 'slow'), false))
         UNION ALL
        SELECT monitor_id, 0, %(start)s, NULL, NULL, false
          FROM given
         UNION ALL
        SELECT id, {stale}, at, status, NULL, false
          FROM unnest(%(stale)s::bigint[], %(stale_at)s::timestamptz[], %(statuses)s::text[]) AS stale (id, at, status)
    ), settled AS (
        SELECT monitor_id, id, goes_down, max(at) OVER written AS start, lead(at) OVER written AS next_at,
               lead(id) OVER written AS next_id,
               CASE id WHEN 0 THEN lead(before) OVER written ELSE after END AS status
          FROM change
        WINDOW written AS (PARTITION BY monitor_id ORDER BY id ROWS UNBOUNDED PRECEDING)
    ), cut AS (
        SELECT found.*, generate_series(first_part, last_part) AS part
          FROM (SELECT ended.*, times, width_bucket(start, times) AS first_part,
                       width_bucket("end", times) AS last_part
                  FROM (SELECT *, greatest(start, coalesce(next_at, %(end)s)) AS "end"
                          FROM settled
                         WHERE id > 0 OR next_id IS NOT NULL
                        OFFSET 0) AS ended
                  JOIN given USING (monitor_id)
                OFFSET 0) AS found
    )
    SELECT monitor_id, part,
           coalesce(sum(length) FILTER (WHERE status IS NOT NULL), interval '0'),
           coalesce(sum(length) FILTER (WHERE status = 'down'), interval '0'),
           count(*) FILTER (WHERE goes_down AND part = first_part),
           min(next_at) FILTER (WHERE id = 0 AND next_id < {stale})
      FROM cut
     CROSS JOIN LATERAL (SELECT least("end", times[part + 1]) - greatest(start, times[part]) AS length) AS overlap
     GROUP BY monitor_id, part
"""
_STALE_ID = 2**63 - 1
_AT_OUTAGE = "CASE WHEN after = 'down' THEN coalesce(failing_since, at) ELSE at END"


@dataclass(slots=True)
class Sums:
    """The totals of each window. `began` is the time of the first transition, which may be before the first window."""

    tallies: list[Tally]
    began: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Cut:
    """The times that cut the windows into parts, and for each part its window, or None, and whether it is silent."""

    times: Sequence[datetime]
    parts: Sequence[tuple[int | None, bool]]


def sums(
    silent: Mapping[int, Sequence[Span]],
    windows: Sequence[Span],
    stale: Iterable[tuple[int, datetime, str | None]],
    *,
    by_outage: bool = False,
) -> dict[int, Sums]:
    """Return the sums by monitor, without the monitors that had no transition since the first window's start.

    `silent` are the periods that count as not observed by the key of the monitor. The windows do not overlap and are
    ordered, oldest first. `stale` are keys of monitors whose observed time ended, its end, and their status.
    `by_outage`: outages begin with their first failed check, like incidents, and not when they are confirmed.
    """
    numbers: dict[tuple[Span, ...], int] = {}
    of_monitor = {pk: numbers.setdefault(tuple(spans), len(numbers)) for pk, spans in silent.items()}
    cuts = [_cut(windows, spans) for spans in numbers]
    times = [(number, at) for number, cut in enumerate(cuts) for at in cut.times]
    stale_ids, stale_at, statuses = tuple(zip(*stale, strict=True)) or ((), (), ())
    with connection.cursor() as cursor:
        cursor.execute(
            _SUMS.format(at=_AT_OUTAGE if by_outage else "at", stale=_STALE_ID),
            {
                "ids": array(of_monitor),
                "cuts": array(of_monitor.values()),
                "numbers": array(number for number, _ in times),
                "times": array(at for _, at in times),
                "start": windows[0].start,
                "end": windows[-1].end,
                "stale": array(stale_ids),
                "stale_at": array(stale_at),
                "statuses": array(statuses),
            },
        )
        rows = cursor.fetchall()
    found: dict[int, Sums] = {}
    for monitor_id, part, observed, down, incidents, began in rows:
        total = found.get(monitor_id)
        if total is None:
            total = found[monitor_id] = Sums([Tally() for _ in windows])
        total.began = began or total.began
        parts = cuts[of_monitor[monitor_id]].parts
        window, is_silent = parts[part - 1] if part <= len(parts) else (None, True)
        if window is not None:
            tally = total.tallies[window]
            tally.incidents += incidents
            if not is_silent:
                tally.observed += observed
                tally.down += down
    return found


def lengths(windows: Sequence[Span], silent: Sequence[Span]) -> list[timedelta]:
    """Return how much of each window is not silent."""
    cut = _cut(windows, silent)
    found = [timedelta()] * len(windows)
    for (window, is_silent), start, end in zip(cut.parts, cut.times, cut.times[1:], strict=False):
        if window is not None and not is_silent:
            found[window] += end - start
    return found


def _cut(windows: Sequence[Span], silent: Iterable[Span]) -> _Cut:
    silent = apart(silent)
    first, last = windows[0].start, windows[-1].end
    inner = (at for span in silent for at in (span.start, span.end) if first < at < last)
    times = sorted({at for window in windows for at in (window.start, window.end)}.union(inner))
    starts, silences = [window.start for window in windows], [span.start for span in silent]
    parts: list[tuple[int | None, bool]] = []
    for at in times[:-1]:
        window, silence = bisect_right(starts, at) - 1, bisect_right(silences, at) - 1
        parts.append((window if at < windows[window].end else None, silence >= 0 and at < silent[silence].end))
    return _Cut(times, parts)
