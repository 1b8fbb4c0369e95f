"""Read results and latencies."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from checks.results.hours import HOUR_OF_CHECK, HourOf, end_of_hour, start_of_hour
from checks.results.models import CheckResult
from checks.results.rollups import rolled_until
from checks.spec import Verdict

_PAGE_SPANS = (timedelta(days=1), timedelta(days=7))


_COLUMNS = (
    "monitor_id",
    "checked_at",
    "claim",
    "latency_ms",
    "connect_ms",
    "ttfb_ms",
    "http_status",
    "verdict",
    "reason_code",
    "detail",
    "evidence",
)
_PASSED = "verdict <> 'down' AND latency_ms IS NOT NULL"


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of time whose latencies are read from roll-ups (`rolled`) or from results. `end` None is open."""

    start: datetime
    end: datetime | None
    rolled: bool = False


def _spans(since: datetime, rolled: datetime | None) -> list[_Span]:
    """Return full hours from roll-ups where they exist, and the rest from results."""
    first = end_of_hour(since)
    if rolled is None or rolled <= first:
        return [_Span(since, None)]
    whole = [_Span(first, rolled, rolled=True), _Span(rolled, None)]
    return whole if since == first else [_Span(since, first), *whole]


def _mean_latencies(monitor_ids: Collection[int], *, since: datetime, key: str) -> dict[Any, float]:
    """Return the mean latency in ms of passed checks by `key`, SQL in which `{at}` is the time."""
    parts: list[str] = []
    parameters: list[Any] = []
    for span in _spans(since, rolled_until()):
        if span.rolled:
            parts.append(
                f"SELECT {key.format(at='hour')} AS key, latency_sum AS total, timed"
                " FROM checks_hourlyrollup WHERE monitor_id = ANY (%s) AND hour >= %s AND hour < %s"
            )
            parameters += [list(monitor_ids), span.start, span.end]
            continue
        parts.append(
            f"SELECT {key.format(at='checked_at')} AS key, sum(latency_ms) AS total, count(*) AS timed"
            f" FROM checks_checkresult WHERE monitor_id = ANY (%s) AND {_PASSED}"
            f" AND {HOUR_OF_CHECK} {'>=' if span.end is None else '='} %s AND checked_at >= %s"
        )
        parameters += [list(monitor_ids), start_of_hour(span.start), span.start]
        if span.end is not None:
            parts[-1] += " AND checked_at < %s"
            parameters.append(span.end)
        parts[-1] += " GROUP BY 1"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT key, sum(total) / sum(timed) FROM ({' UNION ALL '.join(parts)}) AS part"
            " GROUP BY 1 HAVING sum(timed) > 0",
            parameters,
        )
        return {key: round(float(mean), 2) for key, mean in cursor.fetchall()}


def average_latency(monitor_ids: Collection[int], *, since: datetime) -> dict[int, float]:
    """Return the mean latency in ms of passed checks, by monitor with any."""
    return _mean_latencies(monitor_ids, since=since, key="monitor_id")


def daily_latency(monitor_id: int, *, since: datetime) -> dict[date, float]:
    """Return the mean latency in ms of passed checks, by UTC day with any."""
    return _mean_latencies([monitor_id], since=since, key="({at} AT TIME ZONE 'UTC')::date")


def results_of(
    monitor_id: int,
    *,
    limit: int,
    now: datetime,
    before: tuple[datetime, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    verdict: Verdict | None = None,
) -> list[CheckResult]:
    """Return the newest results of [since, until). `before` is (checked_at, claim) of the previous page's last one.

    Two checks may end in the same microsecond, so the claim decides between them.

    The last day is queried first, then its week, then the rest: the day fills most pages, and without a bound the
    planner opens every partition.
    """
    results: QuerySet[CheckResult] = CheckResult.objects.filter(monitor_id=monitor_id)
    newest = now
    if before is not None:
        at, claim = before
        newest = min(newest, at)
        results = _up_to(results, at).filter(Q(checked_at__lt=at) | Q(checked_at=at, claim__lt=claim))
    if until is not None:
        newest = min(newest, until)
        results = _up_to(results, until).filter(checked_at__lt=until)
    if verdict is not None:
        results = results.filter(verdict=verdict)
    # Evidence is read for one result at a time: it can be larger than the rest of a page.
    results = results.defer("evidence").order_by(HourOf("checked_at").desc(), "-checked_at", "-claim")
    rows: list[CheckResult] = []
    for span in _backwards(results, newest, since):
        rows += span[: limit - len(rows)]
        if len(rows) == limit:
            break
    return rows


def _backwards(
    results: QuerySet[CheckResult], newest: datetime, since: datetime | None
) -> Iterator[QuerySet[CheckResult]]:
    """Yield the results in spans of time, the latest first."""
    end: datetime | None = None
    for length in _PAGE_SPANS:
        start = newest - length
        if since is not None and since >= start:
            break
        yield results.filter(checked_at__gte=start, **({} if end is None else {"checked_at__lt": end}))
        end = start
    if end is not None:
        results = results.filter(checked_at__lt=end)
    yield results if since is None else results.filter(checked_at__gte=since)


def _up_to(results: QuerySet[CheckResult], end: datetime) -> QuerySet[CheckResult]:
    """Filter by the hour, which the index begins with, and by the time, which selects the partitions.

    Not for a beginning: the planner takes two bounds for independent, expects few rows, and sorts a whole day.
    """
    hour = start_of_hour(end)
    return results.alias(hour=HourOf("checked_at")).filter(hour__lte=hour, checked_at__lte=end)


def result_of(monitor_id: int, claim: int, at: datetime) -> CheckResult | None:
    """Return the result of a claim that was checked in the millisecond from `at` on."""
    results = CheckResult.objects.filter(monitor_id=monitor_id, claim=claim)
    return (
        results.alias(hour=HourOf("checked_at"))
        .filter(hour=start_of_hour(at), checked_at__gte=at, checked_at__lt=at + timedelta(milliseconds=1))
        .first()
    )


def results_since(claims: Mapping[int, int], *, since: datetime) -> dict[int, CheckResult]:
    """Return by monitor the result of that claim or the first after it, of checks that ended since then."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT ON (monitor_id) {', '.join(_COLUMNS)} FROM checks_checkresult"
            f"  JOIN unnest(%s::bigint[], %s::int[]) AS wanted (monitor, number) ON monitor_id = monitor"
            f" WHERE claim >= number AND {HOUR_OF_CHECK} >= %s AND checked_at >= %s"
            f" ORDER BY monitor_id, claim",
            [list(claims.keys()), list(claims.values()), start_of_hour(since), since],
        )
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:
        row["evidence"] = None if row["evidence"] is None else json.loads(row["evidence"])
    return {row["monitor_id"]: CheckResult(**row) for row in rows}


def evidence_of(checks: Collection[tuple[int, int, datetime]]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the evidence of these (monitor, claim, checked_at), if any, by (monitor, claim)."""
    monitors, claims, times = zip(*checks, strict=True) if checks else ((), (), ())
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT monitor_id, claim, evidence FROM checks_checkresult"
            f"  JOIN unnest(%s::bigint[], %s::int[], %s::timestamptz[]) AS wanted (monitor, number, at)"
            f"    ON monitor_id = monitor AND {HOUR_OF_CHECK} = {HOUR_OF_CHECK.replace('checked_at', 'at')}"
            f"   AND checked_at = at AND claim = number"
            f" WHERE checked_at = ANY (%s) AND evidence IS NOT NULL",
            [list(monitors), list(claims), list(times), list(times)],
        )
        return {(monitor_id, claim): json.loads(evidence) for monitor_id, claim, evidence in cursor.fetchall()}
