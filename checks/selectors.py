"""Reading what checks left behind."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Avg

from checks.models import CheckResult
from checks.spec import Verdict


def average_latency(monitor_ids: Collection[int], *, since: datetime) -> dict[int, float]:
    """Mean latency in ms over passed checks since then, by monitor; one without any is left out."""
    rows = (
        CheckResult.objects.filter(monitor_id__in=monitor_ids, checked_at__gt=since, latency_ms__isnull=False)
        .exclude(verdict=Verdict.DOWN)
        .values_list("monitor_id")
        .annotate(mean=Avg("latency_ms"))
    )
    return {monitor_id: round(mean, 2) for monitor_id, mean in rows}
