"""Read from the database what happened to the monitors in a period of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from benchmarks.load.fill import INTERVAL_SEC

# The lag of a check is the time from its due time, computed from the monitor's first slot and interval, to its end. A
# lag of a whole interval looks like none; `done`, the share of slots that were checked, reveals it.
_LAGS = """
    SELECT count(*),
           percentile_cont(ARRAY[0.5, 0.99])
               WITHIN GROUP (ORDER BY late - %(interval)s * floor(late / %(interval)s)),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms), count(*) FILTER (WHERE verdict = 'down')
      FROM (SELECT extract(epoch FROM checked_at - slot.at)::float8 AS late, latency_ms, verdict
              FROM checks_checkresult AS result JOIN bench_slot AS slot USING (monitor_id)
             WHERE checked_at >= %(start)s AND checked_at < %(end)s AND latency_ms IS NOT NULL) AS result
"""
_SIZE = """
    SELECT sum(pg_total_relation_size(relid))
      FROM (SELECT 'checks_checkresult'::regclass AS relid
            UNION SELECT relid FROM pg_partition_tree('checks_checkresult')) AS part
"""


@dataclass(frozen=True)
class Stretch:
    checks: int
    checks_per_second: float
    done: float
    lag_p50_s: float
    lag_p99_s: float
    latency_p50_ms: float
    failed: int


def stretch(start: datetime, end: datetime, *, monitors: int) -> Stretch:
    seconds = (end - start).total_seconds()
    with connection.cursor() as cursor:
        cursor.execute(_LAGS, {"start": start, "end": end, "interval": float(INTERVAL_SEC)})
        checks, lags, latency, failed = cursor.fetchone()
    if not checks:
        raise SystemExit("not a single check was made")
    return Stretch(
        checks=checks,
        checks_per_second=checks / seconds,
        done=checks / (monitors * seconds / INTERVAL_SEC),
        lag_p50_s=lags[0],
        lag_p99_s=lags[1],
        latency_p50_ms=latency,
        failed=failed,
    )


def any_check() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM checks_checkresult)")
        (found,) = cursor.fetchone()
    return bool(found)


def bytes_per_check() -> float:
    """Return the bytes of the results table with its indexes on disk."""
    with connection.cursor() as cursor:
        cursor.execute(_SIZE)
        (size,) = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM checks_checkresult")
        (rows,) = cursor.fetchone()
    return float(size) / int(rows)


def overdue_sec() -> float:
    """Return how long the most overdue monitor has been due, or 0."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(extract(epoch FROM now() - min(next_due_at)), 0)::float8 FROM monitors_monitorstate"
            " WHERE next_due_at <= now()"
        )
        (seconds,) = cursor.fetchone()
    return float(seconds)
