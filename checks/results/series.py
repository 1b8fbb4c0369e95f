"""Latencies over time: of many monitors by the hour, and of one monitor in the points of a chart."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import compress
from typing import Any

from django.db import connection

from checks.results import database
from checks.results.history import DOWN, EXPLAINED, Row, checks_of, in_millisecond, micros, rows_of, starts_of_hour
from checks.results.hours import HOUR, HOUR_OF_CHECK, start_of_hour
from checks.results.rollups import AGGREGATES, rolled_until

_ROLLED = """
    SELECT monitor_id, hour, {columns}
      FROM checks_hourlyrollup
     WHERE monitor_id = ANY (%(ids)s) AND hour >= %(since)s AND hour < %(rolled)s
"""
_LATEST = f"""
    SELECT monitor_id, {HOUR_OF_CHECK} AS hour, {{aggregates}}
      FROM checks_checkresult
     WHERE monitor_id = ANY (%(ids)s) AND {HOUR_OF_CHECK} >= %(rolled)s AND checked_at >= %(rolled)s
     GROUP BY 1, 2
"""


def _hours(*columns: str) -> tuple[str, str]:
    """Return SQL of hours from `rolled` on, of results, and before it, of roll-ups.

    `since` and `rolled` are full hours. Only the named columns, because the index of roll-ups includes some of them.
    """
    aggregates = ", ".join(f"{AGGREGATES[column]} AS {column}" for column in columns)
    return _LATEST.format(aggregates=aggregates), _ROLLED.format(columns=", ".join(columns))


def _both(statement: str, *columns: str) -> tuple[str, str]:
    """Return the statement for the hours of results, and for those of roll-ups."""
    latest, rolled = _hours(*columns)
    return statement.format(hours=latest), statement.format(hours=rolled)


_REST = f"""
    SELECT monitor_id, {HOUR_OF_CHECK} AS hour, {AGGREGATES["latency_sum"]}, {AGGREGATES["timed"]}
      FROM checks_checkresult
     WHERE monitor_id = ANY (%(ids)s) AND {HOUR_OF_CHECK} = %(hour)s
       AND checked_at >= %(start)s AND checked_at < %(since)s
     GROUP BY 1, 2
"""
_SUM = """
    SELECT {{key}}, sum(latency_sum)::bigint, sum(timed)::bigint,
           NULL::timestamptz, NULL::bigint, NULL::timestamptz, NULL::bytea
      FROM ({hours}) AS hours
     GROUP BY 1
"""
_LATEST_HOURS, _ROLLED_HOURS = _hours("latency_sum", "timed")
# With the rest of the hour before `since`, from `start` on, and `packed_until` of the same moment: the results of later
# hours may be packed too, and read twice.
_LATEST_SUMS = f"""
    {_SUM.format(hours=f"{_LATEST_HOURS} UNION ALL {_REST}")}
     UNION ALL
    SELECT NULL, NULL, NULL, packed_until, NULL, NULL, NULL FROM checks_rollupprogress
"""
_ROLLED_SUMS = f"""
    {_SUM.format(hours=_ROLLED_HOURS)}
     UNION ALL
    SELECT NULL, NULL, NULL, NULL, monitor_id, start, data
      FROM checks_packedresults
     WHERE monitor_id = ANY (%(ids)s) AND start = ANY (%(starts)s)
"""
_BY_MONITOR = _both(
    """
    SELECT monitor_id,
           array_agg((extract(epoch FROM hour - %(since)s) / 3600)::int),
           array_agg((latency_sum::float / nullif(timed, 0))::float),
           array_agg(slow > 0)
      FROM ({hours}) AS hours
     GROUP BY 1
    """,
    *("latency_sum", "slow", "timed"),
)
_BY_STEP = _both(
    """
    SELECT date_bin(make_interval(secs => %(step)s), hour, %(since)s),
           sum(latency_sum)::bigint, sum(timed)::bigint, min(latency_min), max(latency_max),
           sum(loss_sum)::bigint, sum(measured)::bigint
      FROM ({hours}) AS hours
     GROUP BY 1
    """,
    *("latency_sum", "timed", "latency_min", "latency_max", "loss_sum", "measured"),
)
_PLAIN = f"""
    SELECT (extract(epoch FROM checked_at) * 1000000)::bigint, claim,
           verdict <> 'down', latency_ms, connect_ms, ttfb_ms, loss
      FROM checks_checkresult
     WHERE monitor_id = %(id)s AND {HOUR_OF_CHECK} >= %(hour)s AND checked_at >= %(since)s
"""


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of one monitor, oldest first: the mean latency of passed checks in ms, and whether one was slow."""

    latency: Sequence[float | None]
    slow: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Point:
    """The passed checks of a span of time from `at` on, in ms; None if not stored.

    `loss` is the mean percentage of packets lost, over failed checks too.
    """

    at: datetime
    mean: float | None
    least: int | None
    most: int | None
    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    connect: float | None = None
    ttfb: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """`points` with checks, oldest first; `whole` is the whole time."""

    points: Sequence[Point]
    whole: Point


def average_latency(monitor_ids: Collection[int], *, since: datetime) -> dict[int, float]:
    """Return the mean latency in ms of passed checks, by monitor with any."""
    return _means(monitor_ids, since=since, key="monitor_id")


def daily_latency(monitor_id: int, *, since: datetime) -> dict[date, float]:
    """Return the mean latency in ms of passed checks, by UTC day with any."""
    return _means([monitor_id], since=since, key="(hour AT TIME ZONE 'UTC')::date")


def _means(monitor_ids: Collection[int], *, since: datetime, key: str) -> dict[Any, float]:
    hour = start_of_hour(since)
    first = hour if hour == since else hour + HOUR
    given = _span(monitor_ids, first) | {"hour": hour, "start": since}
    given["starts"] = [] if hour == since else starts_of_hour(hour)
    sums: dict[Any, tuple[int, int]] = defaultdict(lambda: (0, 0))
    packed_until: datetime | None = None
    packed: list[Row] = []
    for each, total, count, until, *row in _fetch(_LATEST_SUMS.format(key=key), _ROLLED_SUMS.format(key=key), given):
        if count is not None:
            sums[each] = sums[each][0] + total, sums[each][1] + count
        elif row[0] is not None:
            packed.append(Row._make(row))
        else:
            packed_until = until
    if packed_until is not None and hour < packed_until:
        for packed_row in packed:
            checks = checks_of([packed_row], narrow=True)
            kept = slice(bisect_left(checks.at, micros(since)), bisect_left(checks.at, micros(first)))
            timed = _passed(checks.latency_ms[kept], [kind % EXPLAINED != DOWN for kind in checks.kind[kept]])
            each = packed_row.monitor_id if key == "monitor_id" else since.astimezone(UTC).date()
            sums[each] = sums[each][0] + sum(timed), sums[each][1] + len(timed)
    return {key: round(total / timed, 2) for key, (total, timed) in sums.items() if timed}


def _passed(values: Sequence[int | None], passed: Sequence[bool]) -> list[int]:
    """Return the values that passed checks have."""
    return [value for value in compress(values, passed) if value is not None]


def hours_of(monitor_ids: Collection[int], *, since: datetime, now: datetime) -> dict[int, Hours]:
    """Return the hours from `since` to `now` of each monitor that has results, in two queries."""
    first = start_of_hour(since)
    count = (start_of_hour(now) - first) // HOUR + 1
    found: dict[int, tuple[list[float | None], list[bool]]] = {}
    for monitor_id, offsets, means, slows in _fetch(*_BY_MONITOR, _span(monitor_ids, first)):
        latency, slow = found.setdefault(monitor_id, ([None] * count, [False] * count))
        for offset, mean, was_slow in zip(offsets, means, slows, strict=True):
            if offset < count:  # a worker's clock may be fast
                latency[offset], slow[offset] = mean, was_slow
    return {monitor_id: Hours(*hours) for monitor_id, hours in found.items()}


def rolled_series(monitor_id: int, *, since: datetime, step: timedelta) -> Series:
    """Return points of `step` (full hours) from roll-ups, from the hour of `since` on, without percentiles."""
    first = start_of_hour(since)
    steps = defaultdict(list)
    for at, *sums in _fetch(*_BY_STEP, _span([monitor_id], first) | {"step": step.total_seconds()}):
        steps[at].append(sums)
    points = [_summed(at, steps[at]) for at in sorted(steps)]
    return Series(points, _summed(first, [sums for each in steps.values() for sums in each]))


def _summed(at: datetime, sums: Sequence[Sequence[Any]]) -> Point:
    """Return the point of these sums: latency, timed, least, most, loss and measured."""
    if not sums:
        return Point(at, None, None, None)
    latency, timed, least, most, loss, measured = (
        [value for value in column if value is not None] for column in zip(*sums, strict=True)
    )
    return Point(
        at,
        round(sum(latency) / sum(timed), 1) if any(timed) else None,
        min(least, default=None),
        max(most, default=None),
        loss=round(sum(loss) / sum(measured), 1) if measured else None,
    )


def exact_series(monitor_id: int, *, since: datetime, step: timedelta) -> Series:
    """Return points of `step` from results, from `since` on, as far back as results are kept."""
    with connection.cursor() as cursor:
        cursor.execute(_PLAIN, {"id": monitor_id, "hour": start_of_hour(since), "since": since})
        found: dict[tuple[int, int], tuple[Any, ...]] = {
            in_millisecond(*row[:2]): (row[0], *row[2:]) for row in cursor.fetchall()
        }
    checks = checks_of(rows_of([monitor_id], since, datetime.max.replace(tzinfo=UTC)))
    passed = [kind % EXPLAINED != DOWN for kind in checks.kind]
    first, length = micros(since), step // timedelta(microseconds=1)
    packed = zip(checks.at, passed, checks.latency_ms, checks.connect_ms, checks.ttfb_ms, checks.loss, strict=True)
    # Those that were published between the two queries are in both.
    found |= zip(map(in_millisecond, checks.at, checks.claim), packed, strict=True)
    steps: dict[int, list[list[Any]]] = defaultdict(list)
    for at, *row in found.values():
        if at >= first:
            steps[(at - first) // length].append(row)
    points = [_point(since + number * step, steps[number]) for number in sorted(steps)]
    return Series(points, _point(since, [row for rows in steps.values() for row in rows]))


def _point(at: datetime, rows: Sequence[Sequence[Any]]) -> Point:
    if not rows:
        return Point(at, None, None, None)
    passed, latencies, connects, ttfbs, losses = zip(*rows, strict=True)
    timed = sorted(_passed(latencies, passed))
    # As percentile_disc: the first value that at least this share of the values does not exceed.
    p50, p95, p99 = (timed[-(-percent * len(timed) // 100) - 1] if timed else None for percent in (50, 95, 99))
    return Point(
        at,
        _mean(timed),
        timed[0] if timed else None,
        timed[-1] if timed else None,
        p50,
        p95,
        p99,
        connect=_mean(_passed(connects, passed)),
        ttfb=_mean(_passed(ttfbs, passed)),
        loss=_mean([loss for loss in losses if loss is not None]),
    )


def _mean(values: Collection[int]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None


def _fetch(latest: str, rolled: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of both statements, in one query if both tables are in one database. Results are read first.

    They are packed only after they are rolled up. With two databases, a late result that is packed between the two
    queries is read twice.
    """
    if not database.is_separate():
        latest, rolled = f"{latest} UNION ALL {rolled}", ""
    with connection.cursor() as cursor:
        cursor.execute(latest, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    if rolled:
        with database.reading() as cursor:
            cursor.execute(rolled, values)
            rows += cursor.fetchall()
    return rows


def _span(monitor_ids: Collection[int], first: datetime) -> dict[str, Any]:
    return {"ids": list(monitor_ids), "since": first, "rolled": max(rolled_until() or first, first)}
