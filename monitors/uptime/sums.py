"""Add up the observed time and the downtime of monitors in PostgreSQL, as `monitors.uptime.intervals.tally` does.

A target that fails every other check makes a transition a minute. For an account of a thousand such monitors, a day has
1.4 million: too many to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import connection

from core.bulk import array
from monitors.uptime.intervals import Span, Tally, apart

# Workers' clocks differ a little: a transition earlier than the previous one counts at the time of that one. `stale`
# are transitions that are stored only later, and end the observed time.
_SUMS = """
    WITH change AS (
        SELECT monitor_id, id, kind, before, after, at
          FROM monitors_statuschange
         WHERE monitor_id = ANY (%(ids)s::bigint[]) AND at >= %(start)s
           AND NOT (kind = 'status' AND coalesce(before IN ('up', 'slow') AND after IN ('up', 'slow'), false))
         UNION ALL
        SELECT id, 9223372036854775807, 'stale', status, status, at
          FROM unnest(%(stale)s::bigint[], %(stale_at)s::timestamptz[], %(statuses)s::text[]) AS stale (id, at, status)
    ), settled AS (
        SELECT monitor_id, id, kind, before, after,
               least(greatest(max(at) OVER (PARTITION BY monitor_id ORDER BY id), %(start)s), %(end)s) AS at
          FROM change
    ), interval_of_status AS (
        SELECT monitor_id, after AS status, kind IN ('paused', 'stale') AS paused, at AS start,
               lead(at, 1, %(end)s) OVER (PARTITION BY monitor_id ORDER BY id) AS "end"
          FROM settled
         UNION ALL
        (SELECT DISTINCT ON (monitor_id) monitor_id, before, kind IN ('resumed', 'checked'), %(start)s, at
           FROM settled
          ORDER BY monitor_id, id)
    ), observed AS (
        SELECT monitor_id, status, "end" - start - {gaps} AS length
          FROM interval_of_status AS seen
         WHERE status IS NOT NULL AND NOT paused AND start < "end"
    )
    SELECT settled.monitor_id,
           coalesce(sum(length), interval '0'),
           coalesce(sum(length) FILTER (WHERE status = 'down'), interval '0')
      FROM (SELECT DISTINCT monitor_id FROM settled) AS settled
      LEFT JOIN observed ON observed.monitor_id = settled.monitor_id
     GROUP BY settled.monitor_id
"""
_GAPS = """coalesce((
            SELECT sum(greatest(least(seen."end", gap."end") - greatest(seen.start, gap.start), interval '0'))
              FROM unnest(%(gap_starts)s::timestamptz[], %(gap_ends)s::timestamptz[]) AS gap (start, "end")
           ), interval '0')"""


def sums(
    ids: Iterable[int], window: Span, gaps: Iterable[Span], stale: Iterable[tuple[int, datetime, str | None]]
) -> dict[int, Tally]:
    """Return the tallies by monitor, without outages, and without the monitors that had no transition.

    `stale` are keys of monitors whose observed time ended, its end, and their status.
    """
    known = apart(gaps)
    stale_ids, stale_at, statuses = tuple(zip(*stale, strict=True)) or ((), (), ())
    with connection.cursor() as cursor:
        cursor.execute(
            _SUMS.format(gaps=_GAPS if known else "interval '0'"),
            {
                "ids": array(ids),
                "start": window.start,
                "end": window.end,
                "stale": array(stale_ids),
                "stale_at": array(stale_at),
                "statuses": array(statuses),
                "gap_starts": array(gap.start for gap in known),
                "gap_ends": array(gap.end for gap in known),
            },
        )
        return {monitor_id: Tally(observed, down) for monitor_id, observed, down in cursor.fetchall()}
