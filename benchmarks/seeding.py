"""Generate an artificial history in a few SQL statements, for benchmarks and for trying things out.

Every monitor is up except for an outage of ten checks every three days, at its own time, and not in the last hour:
what a caller adds to today looks the same at any time. Results, roll-ups and status changes agree with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from accounts.models import User
from checks.results.hours import start_of_hour
from checks.results.partitions import RESULTS, ROLLUPS, Series, make
from checks.results.rollups import GRACE, roll_up_past
from core.clock import EPOCH
from monitors.configuration import build, config_columns
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.uptime.daily import write_days

_OUTAGE_SLOTS = 10
_OUTAGE_EVERY = timedelta(days=3)
_CALM = timedelta(hours=1)

# Slots are counted from the epoch. A monitor's number shifts its outages, and its checks within the interval.
_IN_OUTAGE = "(slot + number * 997) %% %(every)s < %(outage)s AND slot < %(calm)s"
# Checks end up to a second after their turn, at any microsecond, and their latencies vary a little, as those of the
# pipeline do: packed history would be much smaller, or larger, with others.
_ANY = "((hashint8(slot * 1000003 + number)::bigint + 2147483648) %% 1000000)"
_AT = f"(to_timestamp(slot * %(interval)s + number %% %(interval)s) + {_ANY} * interval '1 microsecond')"
_MONITORS = "unnest(%(ids)s::bigint[]) WITH ORDINALITY AS monitor (id, number)"
_RESULTS = f"""
    INSERT INTO checks_checkresult (
        monitor_id, checked_at, claim, latency_ms, connect_ms, ttfb_ms, http_status, verdict, reason_code, detail)
    SELECT id, {_AT}, slot - %(first)s + 1, latency, 3 + number %% 8 + any_number / 64 %% 4,
           latency - any_number / 256 %% 3,
           CASE WHEN down THEN 500 ELSE 200 END,
           CASE WHEN down THEN 'down' ELSE 'up' END,
           CASE WHEN down THEN 'http_failure' END,
           CASE WHEN down THEN 'Answered 500.' END
      FROM generate_series(%(start)s::bigint, %(end)s - 1) AS slot,
           {_MONITORS},
           LATERAL (SELECT {_IN_OUTAGE} AS down, {_ANY} AS any_number) AS drawn,
           LATERAL (SELECT 20 + number %% 8 * 35 + any_number %% 8 + any_number / 8 %% 8
                           + CASE WHEN any_number %% 100 = 0 THEN any_number %% 900 ELSE 0 END AS latency) AS found
     ORDER BY 2  -- as they would have come, and lie on disk: a monitor's far from each other
"""
_CHANGES = f"""
    INSERT INTO monitors_statuschange (
        monitor_id, kind, at, before, after, claim, failing_since, reason_code, detail, processed_at)
    SELECT id, 'status', at, before, after, slot - %(first)s + 1,
           CASE WHEN after = 'down' THEN at END,
           CASE WHEN after = 'down' THEN 'http_failure' END,
           CASE WHEN after = 'down' THEN 'Answered 500.' END,
           at  -- processed: no alerts
      FROM (
            SELECT id, slot, {_AT} AS at,
                   CASE WHEN {_IN_OUTAGE} THEN 'down' ELSE 'up' END AS after,
                   CASE WHEN slot = %(first)s THEN NULL
                        WHEN {_IN_OUTAGE.replace("slot", "slot - 1")} THEN 'down' ELSE 'up' END AS before
              FROM generate_series(%(start)s::bigint, %(end)s - 1) AS slot, {_MONITORS}
           ) AS statuses
     WHERE before IS DISTINCT FROM after
     ORDER BY at
"""


@dataclass(frozen=True, slots=True)
class Seeded:
    monitors: int
    results: int
    changes: int


def seed_history(owner: User, *, monitors: int, days: float, interval_sec: int, now: datetime) -> Seeded:
    """Create monitors of `owner` with a past of `days` days. They are never due, so no worker checks them."""
    first, end = (_slot(moment, interval_sec) for moment in (now - timedelta(days=days), now))
    start = EPOCH + timedelta(seconds=first * interval_sec)
    for series in (RESULTS, ROLLUPS):
        make(series, _parts_between(series, start, now))
    columns = config_columns(build({"interval_sec": interval_sec, "url": "http://seeded.invalid/", "name": "Seeded"}))
    drafts = (Monitor(owner=owner, created_at=start, **columns) for _ in range(monitors))
    ids = [monitor.pk for monitor in Monitor.objects.bulk_create(drafts, batch_size=2_000)]
    given: dict[str, Any] = {
        "ids": ids,
        "interval": interval_sec,
        "every": int(_OUTAGE_EVERY.total_seconds()) // interval_sec,
        "outage": _OUTAGE_SLOTS,
        "first": first,
        "calm": _slot(now - _CALM, interval_sec),
    }
    results = changes = 0
    per_day = 86_400 // interval_sec
    for day in range(first, end, per_day):
        span = {"start": day, "end": min(day + per_day, end)}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_RESULTS, given | span)
            results += cursor.rowcount
            cursor.execute(_CHANGES, given | span)
            changes += cursor.rowcount
    roll_up_past(start_of_hour(start), start_of_hour(now - GRACE))
    _make_states(ids, claims=end - first, now=now)
    write_days(now)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return Seeded(len(ids), results, changes)


def _slot(moment: datetime, interval_sec: int) -> int:
    return int((moment - EPOCH).total_seconds()) // interval_sec


def _parts_between(series: Series, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    found = [series.bounds(start)]
    while found[-1][1] <= end:
        found.append(series.bounds(found[-1][1]))
    return found


def _make_states(ids: Sequence[int], *, claims: int, now: datetime) -> None:
    # The last status change of each monitor gives its current status.
    last = StatusChange.objects.filter(monitor__in=ids).order_by("monitor_id", "-at").distinct("monitor_id")
    MonitorState.objects.bulk_create(
        (
            MonitorState(
                monitor_id=monitor_id,
                status=status,
                status_since=since,
                fresh=False,
                claim=claims,
                applied_claim=claims,
                last_checked_at=now,
            )
            for monitor_id, status, since in last.values_list("monitor_id", "after", "at")
        ),
        batch_size=2_000,
    )
