"""Read results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from checks.results.hours import HOUR_OF_CHECK, HourOf, start_of_hour
from checks.results.models import CheckResult
from checks.spec import Verdict
from core.bulk import array
from core.db import fetch_binary

_PAGE_SPANS = (timedelta(days=1), timedelta(days=7))
_DAY = timedelta(days=1)

PastCheck = tuple[datetime, int, str, int | None, str | None, int | None, bool | None]
"""checked_at, claim, verdict, latency_ms, reason_code, location_id and confirmed, as in CheckResult."""


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
    results = CheckResult.objects.alias(hour=HourOf("checked_at")).filter(
        monitor_id__in=claims, hour__gte=start_of_hour(since), checked_at__gte=since
    )
    # Callers poll: most results are of earlier claims, and their evidence may be large.
    found: dict[int, tuple[int, datetime]] = {}
    for monitor_id, claim, at in results.order_by("monitor_id", "claim").values_list(
        "monitor_id", "claim", "checked_at"
    ):
        if claim >= claims[monitor_id]:
            found.setdefault(monitor_id, (claim, at))
    whole = results.filter(monitor_id__in=found, checked_at__in={at for _, at in found.values()})
    return {result.monitor_id: result for result in whole if result.claim == found[result.monitor_id][0]}


_HISTORY = f"""
    SELECT checked_at, claim, verdict, latency_ms, reason_code, location_id, confirmed
      FROM checks_checkresult
     WHERE monitor_id = %s AND {HOUR_OF_CHECK} >= %s AND {HOUR_OF_CHECK} <= %s AND checked_at >= %s AND checked_at < %s
     ORDER BY checked_at, claim
"""


def history_of(monitor_id: int, start: datetime, end: datetime) -> Iterator[PastCheck]:
    """Yield the results of [start, end), oldest first; of two that ended at once, the lower claim.

    One query and its rows in memory per UTC day: 90 days of a monitor at 10 s are 777,600 results.
    """
    while start < end:
        until = min(end, start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + _DAY)
        yield from fetch_binary(_HISTORY, [monitor_id, start_of_hour(start), start_of_hour(until), start, until])
        start = until


# Constants, not a join: with them the planner opens only the partitions of these times. The ORM would compile the query
# again for each list.
_FAILURES = f"""
    SELECT monitor_id, checked_at, reason_code, detail
      FROM checks_checkresult
     WHERE monitor_id = ANY (%(ids)s::bigint[]) AND checked_at = ANY (%(times)s::timestamptz[])
       AND {HOUR_OF_CHECK} = ANY (%(hours)s::timestamptz[]) AND verdict = 'down'
"""


def failures_at(times: Mapping[int, datetime]) -> dict[int, tuple[str | None, str | None]]:
    """Return the reason and the message of the failed checks that ended at these times, both by monitor."""
    if not times:
        return {}
    given = {
        "ids": array(times),
        "times": array(times.values()),
        "hours": array({start_of_hour(at) for at in times.values()}),
    }
    with connection.cursor() as cursor:
        cursor.execute(_FAILURES, given)
        rows = cursor.fetchall()
    return {monitor_id: (reason, detail) for monitor_id, at, reason, detail in rows if times[monitor_id] == at}


def evidence_of(checks: Collection[tuple[int, int, datetime]]) -> dict[tuple[int, int], Any]:
    """Return the evidence of these (monitor, claim, checked_at), if any, by (monitor, claim)."""
    wanted = {(monitor_id, claim) for monitor_id, claim, _ in checks}
    times = {at for _, _, at in checks}
    results = CheckResult.objects.alias(hour=HourOf("checked_at")).filter(
        monitor_id__in={monitor_id for monitor_id, _ in wanted},
        hour__in={start_of_hour(at) for at in times},
        checked_at__in=times,
        evidence__isnull=False,
    )
    found = results.values_list("monitor_id", "claim", "evidence")
    return {(monitor_id, claim): evidence for monitor_id, claim, evidence in found if (monitor_id, claim) in wanted}
