"""Pack results: a row for each monitor and hour, later four for each day, instead of one for each check (ADR 62).

A partition of results is packed into a separate table, in parts of a few monitors. Then that table becomes a partition
of the packed results, and after it the plain one is no longer a partition: each result can be read from one of them at
any time, or for a moment from both, which readers recognize. The plain table is compared with the packed rows before it
is dropped, because a result may have been recorded after its part was packed. Later results go to the default
partition, and are added to the packed row.

The catalogue says how far this is, and parts are written in the order of monitors, so a run that is killed anywhere is
continued by the next one. Each transaction holds LOCK, also in the history database if there is one (see
`checks.results.database`). Nothing here is on the path of a check.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.backends.utils import CursorWrapper

from checks.results import database, history
from checks.results.codec import Checks, DamagedHistory, joined
from checks.results.history import (
    EXPLAINED,
    KIND,
    Reason,
    Row,
    in_millisecond,
    micros,
    packed_row,
    start_of_quarter,
    unpacked,
)
from checks.results.hours import HOUR, HOUR_OF_CHECK, PLAIN_FOR, start_of_hour
from checks.results.models import CheckResult, DeletedMonitor, PackedResults, RollupProgress
from checks.results.partitions import PACKED, PUBLISHED, REASONS, RESULTS, Bounds, catalogue, detached, make, parts
from checks.results.rollups import LOCK as ROLL_UPS
from checks.results.rollups import replace_rollup, take_late
from core.bulk import array
from core.clock import EPOCH
from core.db import advisory_lock, try_advisory_lock

logger = logging.getLogger(__name__)

LOCK = "packing"
# Averages of 24 hours read a part of an hour, and would have to decode the day of each monitor.
MERGE_AFTER = timedelta(hours=25)
CHECKS_AT_ONCE = 60_000
"""About how many checks of monitors at 60 s are packed in one transaction."""
MOST_IN_ROW = 20_000
"""Six hours with more results keep their hours: reading a page of them would decode all."""
MONITORS_AT_ONCE = 50_000
LATE_AT_ONCE = 500
RUN_SEC = 200.0

# Whole microseconds of less than 2 ** 53, so nothing is rounded.
_SINCE = "(date_part('epoch', checked_at - {start}) * 1000000)::bigint"
_COLUMNS = (
    *(_SINCE.format(start=HOUR_OF_CHECK), "claim", "latency_ms", "connect_ms", "ttfb_ms"),
    *("location_id", "http_status", "loss", KIND),
)
_GROUPS = f"""
    SELECT monitor_id, {HOUR_OF_CHECK}, {", ".join(f"array_agg({c} ORDER BY checked_at, claim)" for c in _COLUMNS)}
      FROM {{source}}
     WHERE monitor_id >= %(first)s AND monitor_id < %(until)s
     GROUP BY 1, 2
     ORDER BY 1, 2
"""
_REASONS = f"""
    SELECT monitor_id, {HOUR_OF_CHECK}, {_SINCE.format(start=HOUR_OF_CHECK)}, claim,
           {KIND}, reason_code, detail, confirmed, evidence::text
      FROM {{source}}
     WHERE monitor_id = ANY (%(monitors)s::bigint[])
       AND (verdict = 'down' OR reason_code IS NOT NULL OR detail IS NOT NULL OR confirmed IS NOT NULL
            OR evidence IS NOT NULL)
     ORDER BY 1, 2
"""
_PLAIN = (
    "monitor_id, checked_at, claim, latency_ms, connect_ms, ttfb_ms, location_id, http_status, loss, verdict, "
    "reason_code, detail, confirmed, evidence"
)
# A plain index scan reads a page for each result, a bitmap scan each page once.
_SETTINGS = "SET LOCAL enable_indexscan = off; SET LOCAL work_mem = '32MB'"


def pack(now: datetime, *, steps: int | None = None) -> int:
    """Pack what is old enough, merge days, and add late results. Return the number of steps.

    Each step is a transaction. A run ends after RUN_SEC, after `steps`, or when nothing is left or another one works.
    """
    deadline = time.monotonic() + RUN_SEC
    done = 0
    while (steps is None or done < steps) and time.monotonic() < deadline and _step(now):
        done += 1
    return done


def _step(now: datetime) -> bool:
    """Do the first of what is to do. Return False if nothing is, or another job is working."""
    for published in detached(PUBLISHED):
        return _settle(published)
    return _pack_next(now) or _merge_next(now) or _add_late(now) or _recount()


# Plain partitions ---------------------------------------------------------------------------------------------------


def _pack_next(now: datetime) -> bool:
    progress = RollupProgress.objects.filter(id=1).first()
    rolled = None if progress is None else progress.rolled_until
    for bounds in parts(RESULTS):
        if rolled is None or bounds[1] > min(rolled, now - PLAIN_FOR):
            return False
        if progress is not None and progress.packed_until is not None and bounds[0] < progress.packed_until:
            continue  # made by hand for a time that is packed: its results are late ones
        return _pack_part(bounds) or _publish(bounds)
    return False


def _pack_part(bounds: Bounds) -> bool:
    """Pack the results of the next monitors of a partition. Return False if none is left, or another job works."""
    source, target = RESULTS.name(*bounds), PACKED.name(*bounds)
    make(REASONS, [REASONS.bounds(bounds[0])])
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        if not try_advisory_lock(LOCK) or bounds not in parts(RESULTS):
            return False
        with database.writing(LOCK) as packed:
            if _place(bounds) is not None:
                return False
            _begin(packed, bounds)
            if (first := _next_monitor(cursor, source, _last_monitor(packed, target))) is None:
                return False
            hours = (bounds[1] - bounds[0]) // HOUR
            given = {"first": first, "until": first + max(1, CHECKS_AT_ONCE // 60 // hours)}
            cursor.execute(_SETTINGS)
            explained: set[int] = set()
            with connection.chunked_cursor() as reader:
                reader.execute(_GROUPS.format(source=source), given)
                rows = list(_packed(_groups(reader, explained), bounds))
            _copy(packed, target, rows)
            _write_reasons(packed, source, sorted(explained))
    return True


def _place(bounds: Bounds) -> Bounds | None:
    """Return the packed partition of this time: a day, if the main database was restored from a backup of an earlier
    time than the history has."""
    return next((each for each in parts(PACKED) if each[0] <= bounds[0] and bounds[1] <= each[1]), None)


def _begin(cursor: CursorWrapper, bounds: Bounds) -> None:
    """Create the table to pack into, unless parts of it are there."""
    target = PACKED.name(*bounds)
    if bounds not in detached(PACKED):
        # With the condition, PostgreSQL need not look at the rows again to make it a partition.
        cursor.execute(
            f"CREATE TABLE {target} (LIKE {PACKED.table} INCLUDING DEFAULTS INCLUDING STORAGE,"
            f" CONSTRAINT {target}_span CHECK (start >= %s AND start < %s))",
            bounds,
        )
        cursor.execute(f"CREATE INDEX {target}_monitors ON {target} (monitor_id) WITH (fillfactor = 100)")


def _last_monitor(packed: CursorWrapper, target: str) -> int:
    """Return the last monitor in the table that is packed into, or -1."""
    packed.execute(f"SELECT coalesce(max(monitor_id), -1) FROM {target}")
    last: int = packed.fetchone()[0]
    return last


def _next_monitor(cursor: CursorWrapper, source: str, last: int, where: str = "true") -> int | None:
    """Return the first monitor of `source` after `last`, or None."""
    cursor.execute(f"SELECT min(monitor_id) FROM {source} WHERE monitor_id > %s AND {where}", [last])
    found: int | None = cursor.fetchone()[0]
    return found


def _groups(reader: CursorWrapper, explained: set[int]) -> Iterator[tuple[int, datetime, Checks]]:
    """Yield (monitor, hour, checks). Monitors with reasons are added to `explained`."""
    for monitor_id, hour, at, *columns in reader:
        base = micros(hour)
        checks = Checks([base + since for since in at], *columns)
        if max(checks.kind) >= EXPLAINED:
            explained.add(monitor_id)
        yield monitor_id, hour, checks


def _packed(groups: Iterable[tuple[int, datetime, Checks]], bounds: Bounds) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each monitor: of the hour, or of six hours of a day, unless these have too many."""
    for (monitor_id, quarter), of_quarter in groupby(groups, key=lambda group: (group[0], start_of_quarter(group[1]))):
        hours = list(of_quarter)
        if sum(len(checks.at) for _, _, checks in hours) > MOST_IN_ROW:
            yield from (packed_row(monitor_id, hour, checks) for _, hour, checks in hours)
        else:
            whole = hours[0][2] if len(hours) == 1 else joined(checks for _, _, checks in hours)
            yield packed_row(monitor_id, max(bounds[0], quarter), whole)
        _give_way()


def _give_way() -> None:
    """Let other threads of this process run: its probes measure how long an answer takes, and would wait 5 ms."""
    time.sleep(0)


def _copy(cursor: CursorWrapper, target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with cursor.copy(f"COPY {target} (monitor_id, start, count, verdicts, data) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _write_reasons(packed: CursorWrapper, source: str, monitors: Sequence[int]) -> None:
    if not monitors:
        return
    with connection.chunked_cursor() as reader:
        reader.execute(_REASONS.format(source=source), {"monitors": array(monitors)})
        for (monitor_id, hour), rows in groupby(reader, key=lambda row: row[:2]):
            reasons, evidence = _explained(hour, (row[2:] for row in rows))
            history.write_reasons(packed, monitor_id, hour, reasons, evidence)


def _explained(hour: datetime, rows: Iterable[Any]) -> tuple[dict[history.Key, Reason], dict[history.Key, Any]]:
    reasons: dict[history.Key, Reason] = {}
    evidence: dict[history.Key, Any] = {}
    for since, claim, kind, code, detail, confirmed, found in rows:
        key = micros(hour) + since, claim
        reasons[key] = Reason(kind % EXPLAINED, code, detail, confirmed)
        if found is not None:
            evidence[key] = json.loads(found)
    return reasons, evidence


def _publish(bounds: Bounds) -> bool:
    """Read a partition's results from their packed rows from now on. Return False if locks were not free."""
    name, target = RESULTS.name(*bounds), PACKED.name(*bounds)
    done = False
    if _place(bounds) is None:
        with catalogue(f"publish {target}", PACKED) as packed:
            advisory_lock(LOCK, using=PACKED.alias)
            if bounds in parts(RESULTS) and bounds in detached(PACKED) and not _is_unpacked(packed, bounds):
                _attach(packed, bounds)
                done = True
        return done
    with catalogue(f"detach {name}", RESULTS) as cursor:
        advisory_lock(LOCK)
        advisory_lock(ROLL_UPS)  # which would count a late result of this time alone
        if bounds in parts(RESULTS) and _place(bounds) is not None:
            cursor.execute(f"ALTER TABLE {RESULTS.table} DETACH PARTITION {name}")
            cursor.execute(f"ALTER TABLE {name} RENAME TO {PUBLISHED.name(*bounds)}")
            RollupProgress.objects.filter(id=1).update(packed_until=bounds[1])
            done = True
    return done


def _is_unpacked(packed: CursorWrapper, bounds: Bounds) -> bool:
    """Return whether a monitor's results are not packed yet."""
    last = _last_monitor(packed, PACKED.name(*bounds))
    with connection.cursor() as cursor:
        return _next_monitor(cursor, RESULTS.name(*bounds), last) is not None


def _attach(cursor: CursorWrapper, bounds: Bounds) -> None:
    name = PACKED.name(*bounds)
    cursor.execute(f"ALTER TABLE {PACKED.table} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)", bounds)
    cursor.execute(f"ALTER TABLE {name} DROP CONSTRAINT {name}_span")


def _settle(bounds: Bounds) -> bool:
    """Drop the plain table of packed results. Those that were recorded after its part was packed become late ones."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        if not try_advisory_lock(LOCK) or bounds not in detached(PUBLISHED):
            return False
        with database.writing(LOCK) as packed:
            _drop_published(cursor, packed, bounds)
    return True


def _drop_published(cursor: CursorWrapper, packed: CursorWrapper, bounds: Bounds) -> None:
    source, place = PUBLISHED.name(*bounds), _place(bounds)
    if place is not None:
        target = PACKED.name(*place)
        for monitor_id in _miscounted(cursor, packed, source, target if place == bounds else None):
            _give_back(cursor, packed, monitor_id, source, target)
    else:  # it was dropped as too old, or the history was restored from a backup
        cursor.execute(f"INSERT INTO {RESULTS.table} ({_PLAIN}) SELECT {_PLAIN} FROM {source}")
    cursor.execute(f"DROP TABLE {source}")


def _miscounted(cursor: CursorWrapper, packed: CursorWrapper, source: str, target: str | None) -> list[int]:
    """Return the monitors that have not as many results in `source` as packed in `target`; without it, all."""
    found: list[int] = []
    last = -1
    while (first := _next_monitor(cursor, source, last)) is not None:
        last = first + MONITORS_AT_ONCE - 1
        where = f"monitor_id BETWEEN {first} AND {last} GROUP BY 1"
        cursor.execute(f"SELECT monitor_id, count(*) FROM {source} WHERE {where}")
        counts: dict[int, int] = {}
        if target is not None:
            packed.execute(f"SELECT monitor_id, sum(count)::bigint FROM {target} WHERE {where}")
            counts = dict(packed.fetchall())
        found += (monitor_id for monitor_id, count in cursor.fetchall() if counts.get(monitor_id) != count)
    # Results of deleted monitors are deleted in several steps.
    return sorted(set(found) - set(DeletedMonitor.objects.filter(pk__in=found).values_list("pk", flat=True)))


def _give_back(cursor: CursorWrapper, packed: CursorWrapper, monitor_id: int, source: str, target: str) -> None:
    packed.execute(f"SELECT monitor_id, start, data FROM {target} WHERE monitor_id = %s", [monitor_id])
    known: Counter[history.Key] = Counter()
    for row in packed.fetchall():
        checks = unpacked(Row(*row))
        known.update(map(in_millisecond, checks.at, checks.claim))
    cursor.execute(f"SELECT ctid::text, checked_at, claim FROM {source} WHERE monitor_id = %s", [monitor_id])
    missing = []
    for place, at, claim in cursor.fetchall():
        key = in_millisecond(micros(at), claim)
        if known[key]:
            known[key] -= 1
        else:
            missing.append(place)
    cursor.execute(
        f"INSERT INTO {RESULTS.table} ({_PLAIN}) SELECT {_PLAIN} FROM {source} WHERE ctid = ANY (%s::tid[])",
        [missing],
    )


# Days ---------------------------------------------------------------------------------------------------------------


def _merge_next(now: datetime) -> bool:
    by_day: dict[Bounds, list[Bounds]] = defaultdict(list)
    for bounds in parts(PACKED):
        by_day[PACKED.bounds(bounds[0])].append(bounds)
    progress = RollupProgress.objects.filter(id=1).first()
    packed = None if progress is None else progress.packed_until
    for day, hours in by_day.items():
        if packed is None or day[1] > min(packed, now - MERGE_AFTER):
            return False
        if hours != [day]:
            return _merge_part(day) or _publish_day(day)
    return False


def _merge_part(day: Bounds) -> bool:
    """Merge the hours of the next monitors. Return False if none is left."""
    target = PACKED.name(*day)
    with transaction.atomic(durable=True):
        if not try_advisory_lock(LOCK):
            return False
        with database.writing(LOCK) as packed:
            if day in parts(PACKED):
                return False
            _begin(packed, day)
            span = _span(day)
            if (first := _next_monitor(packed, PACKED.table, _last_monitor(packed, target), span)) is None:
                return False
            given = {"first": first, "until": first + max(1, CHECKS_AT_ONCE // 60 // 4)}
            with connections[PACKED.alias].chunked_cursor() as reader:
                reader.execute(
                    f"SELECT monitor_id, start, count, verdicts, data FROM {PACKED.table}"
                    f" WHERE monitor_id >= %(first)s AND monitor_id < %(until)s AND {span} ORDER BY monitor_id, start",
                    given,
                )
                rows = list(_merged(reader))
            _copy(packed, target, rows)
    return True


def _span(bounds: Bounds) -> str:
    """Return the condition for packed rows of that time, with constants, from which partitions are selected."""
    return f"start >= '{bounds[0].isoformat()}' AND start < '{bounds[1].isoformat()}'"


def _merged(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each six hours of a monitor. A whole day would be stored in chunks that fill pages badly."""
    for (monitor_id, quarter), of_quarter in groupby(rows, key=lambda row: (row[0], start_of_quarter(row[1]))):
        _give_way()
        hours = list(of_quarter)
        if sum(count for _, _, count, _, _ in hours) <= MOST_IN_ROW:
            try:
                checks = joined(unpacked(Row(monitor_id, start, bytes(data))) for _, start, _, _, data in hours)
            except DamagedHistory:
                logger.exception("The results of monitor %d from %s stay in hours.", monitor_id, quarter)
            else:
                yield packed_row(monitor_id, quarter, checks)
                continue
        yield from hours


def _publish_day(day: Bounds) -> bool:
    done = False
    target = PACKED.name(*day)
    with catalogue(f"publish {target}", PACKED) as packed:
        advisory_lock(LOCK, using=PACKED.alias)
        if day in detached(PACKED) and not _next_monitor(
            packed, PACKED.table, _last_monitor(packed, target), _span(day)
        ):
            for start, end in parts(PACKED):
                if day[0] <= start < day[1]:
                    packed.execute(f"DROP TABLE {PACKED.name(start, end)}")
            _attach(packed, day)
            done = True
    return done


# Late results -------------------------------------------------------------------------------------------------------


def _add_late(now: datetime) -> bool:
    """Add results of packed hours to their rows. Return whether there may be more."""
    progress = RollupProgress.objects.filter(id=1).first()
    if progress is None or progress.packed_until is None:
        return False
    oldest = now - timedelta(days=settings.RESULTS_KEPT_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT monitor_id, {HOUR_OF_CHECK} FROM {RESULTS.table}"
            " WHERE checked_at >= %s AND checked_at < %s ORDER BY 2, 1 LIMIT %s",
            [oldest, progress.packed_until, LATE_AT_ONCE],
        )
        pairs: list[tuple[int, datetime]] = cursor.fetchall()
    added = 0
    for hour, of_hour in groupby(pairs, key=lambda pair: pair[1]):
        make(PACKED, [(hour, hour + HOUR)])
        make(REASONS, [REASONS.bounds(hour)])
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            if not try_advisory_lock(LOCK):
                return False
            advisory_lock(ROLL_UPS)
            with database.writing(LOCK, ROLL_UPS) as packed:
                if _is_settled(hour):
                    added += sum(_add(cursor, packed, monitor_id, hour) for monitor_id, _ in of_hour)
    return added > 0


def _is_settled(hour: datetime) -> bool:
    """Return whether no table that is being packed or merged has the hour."""
    return not any(start <= hour < end for series in (PUBLISHED, PACKED) for start, end in detached(series))


def _add(cursor: CursorWrapper, packed: CursorWrapper, monitor_id: int, hour: datetime) -> bool:
    part = next((bounds for bounds in parts(PACKED) if bounds[0] <= hour < bounds[1]), None)
    if part is None:
        return False
    target = PACKED.name(*part)
    packed.execute(f"SELECT monitor_id, start, data FROM {target} WHERE monitor_id = %s ORDER BY start", [monitor_id])
    there = [Row(*row) for row in packed.fetchall()]
    by_start = {row.start: row for row in there}
    found = by_start.get(hour) or by_start.get(start_of_quarter(hour))
    same = [] if found is None else [found]
    try:
        before = [unpacked(row) for row in there]
        reasons = {key[1:]: reason for key, reason in history.reasons_of([monitor_id], [hour]).items()}
        evidence = {key[1:]: each for key, each in history.evidence_in([monitor_id], [hour]).items()}
    except DamagedHistory:
        logger.exception("Late results of monitor %d in %s are not packed.", monitor_id, hour)
        return False
    cursor.execute(
        f"WITH late AS (DELETE FROM {RESULTS.table}"
        f" WHERE monitor_id = %(monitor)s AND {HOUR_OF_CHECK} = %(hour)s"
        f"   AND checked_at >= %(hour)s AND checked_at < %(end)s RETURNING *)"
        f" SELECT {', '.join(_COLUMNS)}, reason_code, detail, confirmed, evidence::text"
        "    FROM late ORDER BY checked_at, claim",
        {"monitor": monitor_id, "hour": hour, "end": hour + HOUR},
    )
    rows = cursor.fetchall()
    # They are packed already if a process ended after the history was written.
    known = {key for checks in before for key in map(in_millisecond, checks.at, checks.claim)}
    added = [row for row in rows if in_millisecond(micros(hour) + row[0], row[1]) not in known]
    if not added:
        return bool(rows)
    columns = [list(column) for column in zip(*(row[:9] for row in added), strict=True)]
    late = Checks([micros(hour) + since for since in columns[0]], *columns[1:])
    whole = joined([*(unpacked(row) for row in same), late])
    if same:
        _, _, count, verdicts, data = packed_row(monitor_id, same[0].start, whole)
        packed.execute(
            f"UPDATE {target} SET count = %s, verdicts = %s, data = %s WHERE monitor_id = %s AND start = %s",
            [count, verdicts, data, monitor_id, same[0].start],
        )
    else:
        packed.execute(
            f"INSERT INTO {target} (monitor_id, start, count, verdicts, data) VALUES (%s, %s, %s, %s, %s)",
            packed_row(monitor_id, hour, whole),
        )
    explained = [(*row[:2], *row[8:]) for row in added if row[8] >= EXPLAINED]
    if explained:
        more_reasons, more_evidence = _explained(hour, explained)
        history.write_reasons(packed, monitor_id, hour, reasons | more_reasons, evidence | more_evidence)
    replace_rollup(packed, monitor_id, hour, _aggregates(joined([*before, late]), hour))
    return True


def _recount() -> bool:
    """Roll up packed hours again whose late results were packed with the others. Return whether there may be more."""
    packed_until = RollupProgress.objects.values_list("packed_until", flat=True).first()
    if packed_until is None:
        return False
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        if not try_advisory_lock(LOCK) or detached(PUBLISHED):
            return False
        advisory_lock(ROLL_UPS)
        late = take_late(cursor, "hour < %s", packed_until, most=LATE_AT_ONCE)
        with database.writing(LOCK, ROLL_UPS) as packed:
            for monitor_id, hour in sorted(set(late)):
                try:
                    found = joined(unpacked(row) for row in history.rows_of([monitor_id], hour, hour + HOUR))
                except DamagedHistory:
                    logger.exception("The roll-up of monitor %d in %s lacks late results.", monitor_id, hour)
                    continue
                if found.at:  # otherwise they are too old, or deleted
                    replace_rollup(packed, monitor_id, hour, _aggregates(found, hour))
    return len(late) == LATE_AT_ONCE


def _aggregates(checks: Checks, hour: datetime) -> list[int | None]:
    """Return the values of `rollups.AGGREGATES` for the checks of that hour."""
    start, end = micros(hour), micros(hour + HOUR)
    found = [
        (kind % EXPLAINED, latency, loss)
        for at, kind, latency, loss in zip(checks.at, checks.kind, checks.latency_ms, checks.loss, strict=True)
        if start <= at < end
    ]
    verdicts = Counter(verdict for verdict, _, _ in found)
    timed = [latency for verdict, latency, _ in found if verdict != history.DOWN and latency is not None]
    losses = [loss for _, _, loss in found if loss is not None]
    return [
        sum(timed),
        *(verdicts[number] for number in range(len(history.VERDICTS))),
        len(timed),
        min(timed, default=None),
        max(timed, default=None),
        sum(losses) if losses else None,
        len(losses) or None,
    ]


# Going back ---------------------------------------------------------------------------------------------------------


def unpack() -> None:
    """Make all packed results rows again, and remove partitions by hour, which earlier versions do not know.

    In the transaction of the caller, who then drops the packed tables. Raises RuntimeError with a second database.
    """
    if database.is_separate():
        raise RuntimeError("earlier versions know one database: run manage.py move_history --back first")
    with connection.cursor() as cursor:
        packed_until = RollupProgress.objects.values_list("packed_until", flat=True).first() or EPOCH
        for bounds in parts(RESULTS):
            if bounds[0] >= packed_until and bounds in parts(PACKED):  # between the two steps of _publish
                cursor.execute(f"DROP TABLE {PACKED.name(*bounds)}")
        hours = [RESULTS.name(start, end) for start, end in parts(RESULTS) if end - start <= HOUR]
        for name in hours:
            cursor.execute(f"ALTER TABLE {RESULTS.table} DETACH PARTITION {name}")
        for name in hours:
            cursor.execute(f"INSERT INTO {RESULTS.table} ({_PLAIN}) SELECT {_PLAIN} FROM {name}")
            cursor.execute(f"DROP TABLE {name}")
        for bounds in detached(PUBLISHED):
            _drop_published(cursor, cursor, bounds)
        for bounds in detached(PACKED):
            cursor.execute(f"DROP TABLE {PACKED.name(*bounds)}")
    packed = PackedResults.objects.order_by("start", "monitor_id").values_list("monitor_id", "start", "data")
    for monitor_id, start, data in packed.iterator(chunk_size=100):
        try:
            checks = unpacked(Row(monitor_id, start, bytes(data)))
        except DamagedHistory:
            logger.exception("The results of monitor %d from %s are lost.", monitor_id, start)
            continue
        found = history.as_results(monitor_id, checks, range(len(checks.at)))
        explained = (row.checked_at for row, kind in zip(found, checks.kind, strict=True) if kind >= EXPLAINED)
        evidence = history.evidence_in([monitor_id], {start_of_hour(at) for at in explained})
        for row in found:
            row.evidence = evidence.get((monitor_id, micros(row.checked_at), row.claim))
        CheckResult.objects.bulk_create(found, batch_size=2_000)
