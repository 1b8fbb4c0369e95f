"""Hourly roll-ups: one set-based statement for an hour of many monitors (ADR 12).

An hour is closed first, in its own transaction, and then rolled up, in parts of MONITORS_AT_ONCE monitors. Recording a
result of a past hour reads what is closed, under a lock that closing waits for. So the result is either committed
before the hour is rolled up, or adds a LateHour. Jobs share one lock, progress is stored after its part (see
`checks.results.database`), and each upsert replaces the row, so concurrent or interrupted jobs count nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from checks.results import database
from checks.results.hours import HOUR, HOUR_OF_CHECK, start_of_hour
from checks.results.models import RollupProgress
from checks.results.partitions import RESULTS, parts
from core.bulk import array, insert_rows
from core.clock import EPOCH
from core.db import advisory_lock, try_advisory_lock

logger = logging.getLogger(__name__)

# An hour is closed this long after its end: until then results come in order and add no LateHour.
GRACE = timedelta(minutes=5)
HOURS_PER_RUN = 48
# Few enough for a transaction of seconds without temporary files. Enough that most pages of the hour have several
# results in each part, which all read these pages: with a million monitors, 10,000 cost 1.4 times as much.
MONITORS_AT_ONCE = 50_000
LATE_AT_ONCE = 2_000
LATE_PER_RUN = 50 * LATE_AT_ONCE
LOCK = "roll-ups"

PASSED = "FILTER (WHERE verdict <> 'down')"
# The columns of a roll-up, as aggregates over the results of its hour.
AGGREGATES = {
    "latency_sum": f"coalesce(sum(latency_ms) {PASSED}, 0)",
    "up": "count(*) FILTER (WHERE verdict = 'up')",
    "slow": "count(*) FILTER (WHERE verdict = 'slow')",
    "down": "count(*) FILTER (WHERE verdict = 'down')",
    "timed": f"count(latency_ms) {PASSED}",
    "latency_min": f"min(latency_ms) {PASSED}",
    "latency_max": f"max(latency_ms) {PASSED}",
    "loss_sum": "sum(loss)",
    "measured": "nullif(count(loss), 0)",
}
_COLUMNS = (
    {"monitor_id": "bigint", "hour": "timestamptz"} | dict.fromkeys(AGGREGATES, "int") | {"latency_sum": "bigint"}
)
_UPSERT = f"""
    INSERT INTO checks_hourlyrollup ({", ".join(_COLUMNS)})
    {{rows}}
    ON CONFLICT (monitor_id, hour) DO UPDATE
    SET ({", ".join(AGGREGATES)}) = ROW ({", ".join(f"excluded.{name}" for name in AGGREGATES)})
"""
_GIVEN = f"SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in _COLUMNS.values())})"
_ROLL_UP = f"""
    SELECT result.monitor_id, {{hour}}, {", ".join(AGGREGATES.values())}
      FROM {{source}}
     WHERE {HOUR_OF_CHECK} = {{hour}} AND checked_at >= %(start)s AND checked_at < %(end)s
     GROUP BY 1, 2
     ORDER BY 2, 1  -- rows of one account, whose monitors have similar ids, are stored together
"""
_PART = _ROLL_UP.format(
    hour="%(start)s::timestamptz",
    source="(SELECT * FROM checks_checkresult WHERE monitor_id >= %(first)s AND monitor_id < %(until)s) AS result",
)
# A plain index scan reads a page for each result, a bitmap scan each page once. The planner counts both as equal.
_SETTINGS = "SET LOCAL enable_indexscan = off; SET LOCAL work_mem = '32MB'"
_NEXT_MONITOR = f"""
    SELECT monitor_id
      FROM checks_checkresult
     WHERE {HOUR_OF_CHECK} = %(start)s AND checked_at >= %(start)s AND checked_at < %(end)s AND monitor_id >= %(first)s
     ORDER BY monitor_id
     LIMIT 1
"""
_REDO = _ROLL_UP.format(
    hour="late.hour",
    source="""unnest(%(monitors)s::bigint[], %(hours)s::timestamptz[]) AS late (monitor_id, hour)
      JOIN checks_checkresult AS result ON result.monitor_id = late.monitor_id""",
)
_NEWEST = """
    SELECT hour
      FROM (SELECT hour, sum(up + slow + down) OVER (ORDER BY hour DESC) AS total
              FROM checks_hourlyrollup
             WHERE monitor_id = %(id)s AND hour >= %(start)s AND hour < %(end)s) AS newest
     WHERE total > %(most)s
     ORDER BY hour DESC
     LIMIT 1
"""
# KEY SHARE: many transactions hold it at once, and an update of rolled_until does not wait for it.
_CLOSED = "SELECT closed_until FROM checks_rollupprogress WHERE id = 1 FOR KEY SHARE"


def roll_up(now: datetime, *, most: int = HOURS_PER_RUN) -> int:
    """Roll up hours that have ended, the oldest first, and hours with late results.

    At most `most` hours: after a long stop the next runs continue. Return the number of hours.
    """
    _close(now)
    done = 0
    while done < most and (ended := _roll_up_next()) is not None:
        done += ended
    for _ in range(LATE_PER_RUN // LATE_AT_ONCE):
        if _redo(now) < LATE_AT_ONCE:
            break
    return done


def roll_up_past(start: datetime, end: datetime) -> None:
    """Roll up the full hours of [start, end), for results that were inserted without recording."""
    hour = start
    while hour < end:
        part_until: int | None = 0
        while part_until is not None:
            with transaction.atomic(durable=True):
                advisory_lock(LOCK)
                with database.writing(LOCK) as history:
                    part_until = _roll_up_part(history, hour, first=part_until)
        hour += HOUR
    # Only if nothing was rolled up before. Otherwise the job continues where it is, and repeats these hours.
    RollupProgress.objects.get_or_create(id=1)
    RollupProgress.objects.filter(rolled_until=None).update(closed_until=end, rolled_until=end)


def _roll_up_part(history: CursorWrapper, hour: datetime, *, first: int) -> int | None:
    """Roll up an hour of the next monitors, from `first` on. Return where to continue, or None if none has a result."""
    given: dict[str, Any] = {"start": hour, "end": hour + HOUR, "first": first}
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_MONITOR, given)
        if (row := cursor.fetchone()) is None:
            return None
        until: int = row[0] + MONITORS_AT_ONCE
        cursor.execute(_SETTINGS)
        _replace(history, cursor, _PART, given | {"first": row[0], "until": until})
    return until


def _replace(history: CursorWrapper, cursor: CursorWrapper, query: str, given: dict[str, Any]) -> None:
    """Store the rows of a query of the main database as roll-ups."""
    if not database.is_separate():
        cursor.execute(_UPSERT.format(rows=query), given)
        return
    cursor.execute(query, given)
    while rows := cursor.fetchmany(LATE_AT_ONCE):
        history.execute(_UPSERT.format(rows=_GIVEN), [array(column) for column in zip(*rows, strict=True)])


def rolled_until() -> datetime | None:
    """Return the time before which hours are rolled up, or None."""
    return RollupProgress.objects.values_list("rolled_until", flat=True).first()


def hour_of_newest(most: int, monitor_id: int, *, start: datetime, end: datetime) -> datetime | None:
    """Return the earliest hour from which on at most `most` results are in [start, end); None: all are fewer.

    Hours that are not rolled up yet count nothing.
    """
    with database.reading() as cursor:
        cursor.execute(_NEWEST, {"id": monitor_id, "most": most, "start": start_of_hour(start), "end": end})
        row = cursor.fetchone()
    return None if row is None else row[0] + HOUR


def note_late(results: Collection[tuple[int, datetime]], *, now: datetime) -> None:
    """Mark closed hours to be rolled up again, in the transaction that stores results.

    `results` are (monitor, checked_at). Nearly all of them are of this hour, and cost a comparison. The lock is shared,
    and closing an hour waits for the end of this transaction.
    """
    this_hour = start_of_hour(now)
    earlier = {(monitor_id, start_of_hour(at)) for monitor_id, at in results if at < this_hour}
    if not earlier:
        return
    with connection.cursor() as cursor:
        cursor.execute(_CLOSED)
        if (row := cursor.fetchone()) is None:  # the first one ever: without a row nothing can be locked
            RollupProgress.objects.bulk_create([RollupProgress(id=1)], ignore_conflicts=True)
            cursor.execute(_CLOSED)
            row = cursor.fetchone()
    closed_until = row[0]
    if closed_until is not None:
        late = [pair for pair in earlier if pair[1] < closed_until]
        insert_rows("checks_latehour", {"monitor_id": "bigint", "hour": "timestamptz"}, sorted(late))


def _close(now: datetime) -> None:
    """Close all hours that ended some time ago. Waits for concurrent recording, which locks the row for moments."""
    end = start_of_hour(now - GRACE)
    progress, _ = RollupProgress.objects.get_or_create(id=1)
    if progress.closed_until is not None and progress.closed_until >= end:
        return
    with transaction.atomic():
        progress = RollupProgress.objects.select_for_update().get(id=1)
        if progress.closed_until is None:
            progress.closed_until = progress.rolled_until = _first_hour(now)
        if progress.closed_until is not None and progress.closed_until < end:
            progress.closed_until = end
            progress.save(update_fields=["closed_until", "rolled_until"])


def _first_hour(now: datetime) -> datetime | None:
    """Return the first hour to roll up, that of the oldest results, or None without results."""
    found: list[datetime] = []
    oldest = start_of_hour(now) - timedelta(days=settings.RESULTS_KEPT_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT min(checked_at) FROM {RESULTS.default} WHERE checked_at >= %s", [oldest])
        found += filter(None, cursor.fetchone())
        for bounds in parts(RESULTS):
            cursor.execute(f"SELECT EXISTS (SELECT FROM {RESULTS.name(*bounds)})")
            if cursor.fetchone()[0]:
                found.append(bounds[0])
                break
    return max(start_of_hour(min(found)), oldest) if found else None


def _roll_up_next() -> bool | None:
    """Roll up the next part of the oldest closed hour. Return whether the hour is complete.

    Return None if no hour is left or another job is running.
    """
    with transaction.atomic(durable=True):
        if not try_advisory_lock(LOCK):
            return None
        progress = RollupProgress.objects.get(id=1)
        start, closed = progress.rolled_until, progress.closed_until
        if start is None or closed is None or start >= closed:
            return None
        # During an upgrade, earlier versions roll up whole hours and leave the part of an earlier one.
        first = progress.part_until if progress.part_hour == start else None
        with database.writing(LOCK) as history:
            part_until = _roll_up_part(history, start, first=first or 0)
        if part_until is None:
            progress.rolled_until = start + HOUR
        else:
            progress.part_hour, progress.part_until = start, part_until
        progress.save(update_fields=["rolled_until", "part_hour", "part_until"])
    logger.debug("rolled up %s, monitors before %s", start, part_until)
    return part_until is None


def take_late(cursor: CursorWrapper, condition: str, value: datetime, *, most: int) -> list[tuple[int, datetime]]:
    """Delete LateHour rows that meet the condition, the oldest first, and return their (monitor, hour)."""
    cursor.execute(
        f"""
        DELETE FROM checks_latehour
         WHERE id = ANY (ARRAY(SELECT id FROM checks_latehour WHERE {condition} ORDER BY id LIMIT %s))
        RETURNING monitor_id, hour
        """,
        [value, most],
    )
    found: list[tuple[int, datetime]] = cursor.fetchall()
    return found


def replace_rollup(history: CursorWrapper, monitor_id: int, hour: datetime, values: Sequence[int | None]) -> None:
    """Store the roll-up of one hour. `values` are those of AGGREGATES."""
    row = [monitor_id, hour, *values]
    history.execute(_UPSERT.format(rows=f"VALUES ({', '.join(['%s'] * len(row))})"), row)


def _redo(now: datetime) -> int:
    """Roll up hours with late results again, and return the number of LateHour rows that were processed.

    The rows are deleted before the results are read, so a later one is left for the next run. An hour that is nearly
    too old is left alone: some of its results may be dropped, and its roll-up must stay. Packed ones are left to
    `checks.results.packing`.
    """
    oldest = start_of_hour(now) + HOUR - timedelta(days=settings.RESULTS_KEPT_DAYS)
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        if not try_advisory_lock(LOCK):
            return 0
        packed = RollupProgress.objects.values_list("packed_until", flat=True).first()
        late = take_late(cursor, "hour >= %s", packed or EPOCH, most=LATE_AT_ONCE)
        pairs = {(monitor_id, hour) for monitor_id, hour in late if hour >= oldest}
        if pairs:
            hours = [hour for _, hour in pairs]
            given = {
                "monitors": [monitor_id for monitor_id, _ in pairs],
                "hours": hours,
                "start": min(hours),
                "end": max(hours) + HOUR,
            }
            with database.writing(LOCK) as history:
                _replace(history, cursor, _REDO, given)
    return len(late)
