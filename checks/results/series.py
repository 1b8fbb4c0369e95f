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

from checks.results.history import DOWN, EXPLAINED, Row, checks_of, in_millisecond, micros, rows_of, starts_of_hour
from checks.results.hours import HOUR, HOUR_OF_CHECK, start_of_hour
from checks.results.rollups import AGGREGATES, rolled_until

_STEP = "date_bin(make_interval(secs => %(step)s), {at}, %(since)s)"


def _hours(*columns: str) -> str:
    """Return SQL of hours: from roll-ups before `rolled`, and from results after it.

    `since` and `rolled` are full hours. Only the named columns, because the index of roll-ups includes some of them.
    """
    return f"""
    SELECT monitor_id, hour, {", ".join(columns)}
      FROM checks_hourlyrollup
     WHERE monitor_id = ANY (%(ids)s) AND hour >= %(since)s AND hour < %(rolled)s
     UNION ALL
    SELECT monitor_id, {HOUR_OF_CHECK}, {", ".join(AGGREGATES[column] for column in columns)}
      FROM checks_checkresult
     WHERE monitor_id = ANY (%(ids)s) AND {HOUR_OF_CHECK} >= %(rolled)s AND checked_at >= %(rolled)s
     GROUP BY 1, 2
"""


# With the rest of the hour before `since`, from `start` on. Its packed results are read by the same statement: between
# two, it may be published, and counted twice.
_SUMS = f"""
    SELECT {{key}}, sum(latency_sum)::bigint, sum(timed)::bigint, NULL::bigint, NULL::timestamptz, NULL::bytea
      FROM ({_hours("latency_sum", "timed")}
             UNION ALL
            SELECT monitor_id, {HOUR_OF_CHECK}, {AGGREGATES["latency_sum"]}, {AGGREGATES["timed"]}
              FROM checks_checkresult
             WHERE monitor_id = ANY (%(ids)s) AND {HOUR_OF_CHECK} = %(hour)s
               AND checked_at >= %(start)s AND checked_at < %(since)s
             GROUP BY 1, 2) AS hours
     GROUP BY 1
     UNION ALL
    SELECT NULL, NULL, NULL, monitor_id, start, data
      FROM checks_packedresults
     WHERE monitor_id = ANY (%(ids)s) AND start = ANY (%(starts)s)
"""
_BY_MONITOR = f"""
    SELECT monitor_id,
           array_agg((extract(epoch FROM hour - %(since)s) / 3600)::int),
           array_agg((latency_sum::float / nullif(timed, 0))::float),
           array_agg(slow > 0)
      FROM ({_hours("latency_sum", "slow", "timed")}) AS hours
     GROUP BY 1
"""
_ROLLED = f"""
    SELECT {_STEP.format(at="hour")}, sum(latency_sum) / nullif(sum(timed), 0), min(latency_min), max(latency_max),
           sum(loss_sum)::float / sum(measured)
      FROM ({_hours("latency_sum", "timed", "latency_min", "latency_max", "loss_sum", "measured")}) AS hours
     GROUP BY GROUPING SETS ((1), ())
     ORDER BY 1 NULLS LAST
"""
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
    starts = [] if hour == since else starts_of_hour(hour)
    sums: dict[Any, tuple[int, int]] = defaultdict(lambda: (0, 0))
    with connection.cursor() as cursor:
        given = _span(monitor_ids, first) | {"hour": hour, "start": since, "starts": starts}
        cursor.execute(_SUMS.format(key=key), given)
        rows = cursor.fetchall()
    for each, total, count, monitor_id, start, data in rows:
        if data is not None:
            checks = checks_of([Row(monitor_id, start, bytes(data))], narrow=True)
            kept = slice(bisect_left(checks.at, micros(since)), bisect_left(checks.at, micros(first)))
            timed = _passed(checks.latency_ms[kept], [kind % EXPLAINED != DOWN for kind in checks.kind[kept]])
            each = monitor_id if key == "monitor_id" else since.astimezone(UTC).date()
            total, count = sum(timed), len(timed)
        before = sums[each]
        sums[each] = before[0] + total, before[1] + count
    return {key: round(total / timed, 2) for key, (total, timed) in sums.items() if timed}


def _passed(values: Sequence[int | None], passed: Sequence[bool]) -> list[int]:
    """Return the values that passed checks have."""
    return [value for value in compress(values, passed) if value is not None]


def hours_of(monitor_ids: Collection[int], *, since: datetime, now: datetime) -> dict[int, Hours]:
    """Return the hours from `since` to `now` of each monitor that has results, in two queries."""
    first = start_of_hour(since)
    count = (start_of_hour(now) - first) // HOUR + 1
    found: dict[int, Hours] = {}
    with connection.cursor() as cursor:
        cursor.execute(_BY_MONITOR, _span(monitor_ids, first))
        for monitor_id, offsets, means, slows in cursor.fetchall():
            latency: list[float | None] = [None] * count
            slow = [False] * count
            for offset, mean, was_slow in zip(offsets, means, slows, strict=True):
                if offset < count:  # a worker's clock may be fast
                    latency[offset], slow[offset] = mean, was_slow
            found[monitor_id] = Hours(latency, slow)
    return found


def rolled_series(monitor_id: int, *, since: datetime, step: timedelta) -> Series:
    """Return points of `step` (full hours) from roll-ups, from the hour of `since` on, without percentiles."""
    first = start_of_hour(since)
    return _series(_ROLLED, _span([monitor_id], first) | {"step": step.total_seconds()}, since=first)


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


def _series(statement: str, values: Mapping[str, Any], *, since: datetime) -> Series:
    points = []
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        for at, mean, least, most, loss in cursor.fetchall():
            points.append(Point(at or since, _float(mean), least, most, loss=_float(loss)))
    return Series(points[:-1], points[-1])


def _span(monitor_ids: Collection[int], first: datetime) -> dict[str, Any]:
    return {"ids": list(monitor_ids), "since": first, "rolled": max(rolled_until() or first, first)}


def _float(value: Any) -> float | None:
    return None if value is None else round(float(value), 1)
