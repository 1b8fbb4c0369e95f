"""Reading what checks left behind."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta

from django.db.models import Avg, Q, QuerySet
from django.db.models.functions import TruncDate

from checks.models import CheckResult
from checks.spec import Verdict


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
    before: tuple[datetime, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    verdict: Verdict | None = None,
) -> list[CheckResult]:
    """The newest results of [since, until), at most `limit`; `before` is (checked_at, claim) of the last one had.

    Two checks may end in the same microsecond (a repeated one, a late one), so the claim decides between
    them. The bound on checked_at alone is repeated because it is what the index result_history is walked by.
    """
    results: QuerySet[CheckResult] = CheckResult.objects.filter(monitor_id=monitor_id)
    if before is not None:
        at, claim = before
        results = results.filter(
            Q(checked_at__lte=at), Q(checked_at__lt=at) | Q(checked_at=at, claim__lt=claim)
        )
    if since is not None:
        results = results.filter(checked_at__gte=since)
    if until is not None:
        results = results.filter(checked_at__lt=until)
    if verdict is not None:
        results = results.filter(verdict=verdict)
    # Evidence is read of one result at a time: it can outweigh all the rest of a page.
    return list(results.defer("evidence").order_by("-checked_at", "-claim")[:limit])


def result_of(monitor_id: int, claim: int, at: datetime) -> CheckResult | None:
    """The result of a claim that was checked in the millisecond from `at` on."""
    return CheckResult.objects.filter(
        monitor_id=monitor_id,
        claim=claim,
        checked_at__gte=at,
        checked_at__lt=at + timedelta(milliseconds=1),
    ).first()
