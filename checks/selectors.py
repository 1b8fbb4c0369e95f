"""Reading what checks left behind."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta

from django.db.models import Avg, Q, QuerySet
from django.db.models.functions import TruncDate

from checks.hours import HourOf, start_of_hour
from checks.models import CheckResult
from checks.spec import Verdict

_RECENT = timedelta(days=1)


def _passed(*, since: datetime) -> QuerySet[CheckResult]:
    return CheckResult.objects.filter(checked_at__gte=since, latency_ms__isnull=False).exclude(
        verdict=Verdict.DOWN
    )


def average_latency(monitor_ids: Collection[int], *, since: datetime) -> dict[int, float]:
    """Mean latency in ms over passed checks since then, by monitor; one without any is left out."""
    rows = (
        _passed(since=since)
        .filter(monitor_id__in=monitor_ids)
        .values_list("monitor_id")
        .annotate(mean=Avg("latency_ms"))
    )
    return {monitor_id: round(mean, 2) for monitor_id, mean in rows}


def daily_latency(monitor_id: int, *, since: datetime) -> dict[date, float]:
    """Mean latency in ms over passed checks by day of UTC; a day without any is left out."""
    rows = (
        _passed(since=since)
        .filter(monitor_id=monitor_id)
        .annotate(day=TruncDate("checked_at", tzinfo=UTC))
        .values_list("day")
        .annotate(mean=Avg("latency_ms"))
    )
    return {day: round(mean, 2) for day, mean in rows}


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
    """The newest results of [since, until), at most `limit`; `before` is (checked_at, claim) of the last one had.

    Two checks may end in the same microsecond (a repeated one, a late one), so the claim decides between them.

    The last day of them is asked for first. It fills most pages, and what lies before it is then not even planned
    for: without a bound every partition is opened, and a page costs as much as there are days.
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
    # Evidence is read of one result at a time: it can outweigh all the rest of a page.
    results = results.defer("evidence").order_by(HourOf("checked_at").desc(), "-checked_at", "-claim")
    recent = newest - _RECENT
    if since is not None and since >= recent:
        return list(results.filter(checked_at__gte=since)[:limit])
    rows = list(results.filter(checked_at__gte=recent)[:limit])
    if len(rows) < limit:
        earlier = results.filter(checked_at__lt=recent)
        rows += (earlier if since is None else earlier.filter(checked_at__gte=since))[: limit - len(rows)]
    return rows


def _up_to(results: QuerySet[CheckResult], end: datetime) -> QuerySet[CheckResult]:
    """Those until then; by the hour, which the index begins at, and by the time, which tells the partitions.

    There is no such thing for a beginning: the page ends there anyhow, and the planner takes two bounds for
    independent, expects next to nothing, and reads and sorts a day to find the last hundred of it.
    """
    hour = start_of_hour(end)
    return results.alias(hour=HourOf("checked_at")).filter(hour__lte=hour, checked_at__lte=end)


def result_of(monitor_id: int, claim: int, at: datetime) -> CheckResult | None:
    """The result of a claim that was checked in the millisecond from `at` on."""
    results = CheckResult.objects.filter(monitor_id=monitor_id, claim=claim)
    return (
        results.alias(hour=HourOf("checked_at"))
        .filter(hour=start_of_hour(at), checked_at__gte=at, checked_at__lt=at + timedelta(milliseconds=1))
        .first()
    )
