"""Reading monitors: for the API, with their statistics, and for workers, as specs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from checks.selectors import average_latency
from checks.spec import Verdict
from core.errors import NotFound
from monitors.models import Monitor, SchedulerGap, SchedulerTick, StatusChange
from monitors.uptime import Span, Standing, Turn, uptime_percent
from projects import access
from projects.access import Caller

logger = logging.getLogger(__name__)

DAY = timedelta(hours=24)


def monitors_named(public_ids: Collection[str]) -> QuerySet[Monitor]:
    """For the operator at the machine, who is no tenant and sees all."""
    return (
        Monitor.objects.select_related("state", "project")
        .filter(public_id__in=public_ids)
        .order_by("name", "pk")
    )


@dataclass(frozen=True, slots=True)
class Statistics:
    uptime_24h: float | None
    avg_latency_24h: float | None


def list_monitors(caller: Caller) -> QuerySet[Monitor]:
    return access.accessible(caller, Monitor.objects.select_related("state", "project"))


def get_monitor(caller: Caller, public_id: str) -> Monitor:
    monitor = list_monitors(caller).filter(public_id=public_id).first()
    if monitor is None:
        raise NotFound
    return monitor


def statistics(monitors: Sequence[Monitor], *, now: datetime) -> dict[int, Statistics]:
    """Of all the monitors in four queries, however many they are."""
    window = Span(now - DAY, now)
    ids = [monitor.pk for monitor in monitors]
    latencies = average_latency(ids, since=window.start)
    gaps = gaps_since(window.start)
    turns = turns_since(window.start, ids)
    return {
        monitor.pk: Statistics(
            uptime_percent(window, turns[monitor.pk], standing_of(monitor), gaps), latencies.get(monitor.pk)
        )
        for monitor in monitors
    }


def gaps_since(start: datetime) -> list[Span]:
    """When Pulsekeeper itself was stopped."""
    gaps = SchedulerGap.objects.filter(ended_at__gt=start)
    return [Span(gap.started_at, gap.ended_at) for gap in gaps]


def turns_since(start: datetime, monitor_ids: Sequence[int]) -> dict[int, list[Turn]]:
    """The turns of each monitor that bear on its uptime.

    Those between up and slow do not, and a monitor that wavers has one for every check. There is no end: a
    worker's clock may be ahead of ours, and a change of the next second tells how it stood until now. Ordered
    as they were written, under the lock of the monitor's state.
    """
    passing = (Verdict.UP, Verdict.SLOW)
    changes = (
        StatusChange.objects.filter(monitor__in=monitor_ids, at__gte=start)
        .exclude(kind=StatusChange.Kind.STATUS, before__in=passing, after__in=passing)
        .order_by("pk")
    )
    turns: dict[int, list[Turn]] = defaultdict(list)
    for monitor_id, kind, at, before, after in changes.values_list(
        "monitor_id", "kind", "at", "before", "after"
    ):
        turns[monitor_id].append(
            Turn(
                at,
                Standing(_verdict(before), paused=kind == StatusChange.Kind.RESUMED),
                Standing(_verdict(after), paused=kind == StatusChange.Kind.PAUSED),
            )
        )
    return turns


def standing_of(monitor: Monitor) -> Standing:
    return Standing(_verdict(monitor.state.status), paused=not monitor.enabled)


def _verdict(status: str | None) -> Verdict | None:
    return None if status is None else Verdict(status)


def last_tick() -> datetime | None:
    """When the scheduler last ran."""
    return SchedulerTick.objects.values_list("at", flat=True).first()
