"""Reading monitors: for the API, with their statistics, and for workers, as specs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from django.db.models import QuerySet

from checks.selectors import average_latency
from checks.spec import CheckSpec, Verdict
from core.errors import NotFound
from monitors.models import Monitor, SchedulerGap, SchedulerTick, StatusChange, spec_of
from monitors.uptime import Span, Standing, Turn, uptime_percent
from projects import access
from projects.access import Caller

logger = logging.getLogger(__name__)

DAY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Statistics:
    uptime_24h: float | None
    avg_latency_24h: float | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """One check to be made: the spec, and the numbers that its result will be recorded under."""

    monitor_id: int
    claim: int
    config_version: int
    spec: CheckSpec


def list_monitors(caller: Caller) -> QuerySet[Monitor]:
    return access.accessible(caller, Monitor.objects.select_related("state", "project"))


def get_monitor(caller: Caller, public_id: str) -> Monitor:
    monitor = list_monitors(caller).filter(public_id=public_id).first()
    if monitor is None:
        raise NotFound
    return monitor


def statistics(monitors: Sequence[Monitor], *, now: datetime) -> dict[int, Statistics]:
    """Of all the monitors in three queries, however many they are."""
    window = Span(now - DAY, now)
    ids = [monitor.pk for monitor in monitors]
    latencies = average_latency(ids, since=window.start)
    gaps = [
        Span(gap.started_at, gap.ended_at)
        for gap in SchedulerGap.objects.filter(ended_at__gt=window.start, started_at__lt=now)
    ]
    turns: dict[int, list[Turn]] = defaultdict(list)
    changes = StatusChange.objects.filter(monitor__in=ids, at__gt=window.start, at__lte=now).order_by(
        "at", "pk"
    )
    for change in changes.only("monitor_id", "kind", "at", "before", "after"):
        turns[change.monitor_id].append(_turn(change))
    return {
        monitor.pk: Statistics(
            uptime_percent(window, turns[monitor.pk], _standing_of(monitor), gaps), latencies.get(monitor.pk)
        )
        for monitor in monitors
    }


def _turn(change: StatusChange) -> Turn:
    return Turn(
        change.at,
        Standing(_verdict(change.before), paused=change.kind == StatusChange.Kind.RESUMED),
        Standing(_verdict(change.after), paused=change.kind == StatusChange.Kind.PAUSED),
    )


def _standing_of(monitor: Monitor) -> Standing:
    return Standing(_verdict(monitor.state.status), paused=not monitor.enabled)


def _verdict(status: str | None) -> Verdict | None:
    return None if status is None else Verdict(status)


def load_assignments(claims: Iterable[tuple[int, int]]) -> list[Assignment]:
    """What is still to be checked of (monitor, claim): not paused, the claim open and not handed out anew."""
    wanted = dict(claims)
    monitors = Monitor.objects.filter(
        pk__in=wanted, enabled=True, state__claimed_at__isnull=False
    ).select_related("state")
    assignments = []
    for monitor in monitors:
        if monitor.state.claim != wanted[monitor.pk]:
            continue
        try:
            spec = spec_of(monitor.draft)
        except InvalidToken:
            # Our own fault, not the target's: no verdict, and the others of the batch go on.
            logger.exception("no key of ENCRYPTION_KEYS opens the headers of %s", monitor.public_id)
            continue
        assignments.append(Assignment(monitor.pk, monitor.state.claim, monitor.config_version, spec))
    return assignments


def last_tick() -> datetime | None:
    """When the scheduler last ran."""
    return SchedulerTick.objects.values_list("at", flat=True).first()
