"""Read monitors with their statistics and transitions."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import DateTimeField, ExpressionWrapper, F, IntegerField, Q, QuerySet, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Greatest
from django.db.models.lookups import LessThan

from checks.results.series import average_latency
from checks.spec import Verdict
from core.db import get_or_not_found
from monitors import types
from monitors.models import MaintenanceSpan, Monitor, MonitorState, SchedulerGap, SchedulerTick, StatusChange
from monitors.uptime.intervals import Span, StatusInterval, Transition, tally
from projects import access
from projects.access import Caller

logger = logging.getLogger(__name__)

DAY = timedelta(hours=24)


def monitors_named(public_ids: Collection[str]) -> QuerySet[Monitor]:
    """Return the monitors with these ids, of any tenant: for the operator of the server."""
    return Monitor.objects.select_related("state", "project").filter(public_id__in=public_ids).order_by("name", "pk")


@dataclass(frozen=True, slots=True)
class Statistics:
    uptime_24h: float | None
    avg_latency_24h: float | None


def list_monitors(caller: Caller) -> QuerySet[Monitor]:
    return access.accessible(caller, Monitor.objects.select_related("state", "project"))


def get_monitor(caller: Caller, public_id: str) -> Monitor:
    return get_or_not_found(list_monitors(caller), public_id=public_id)


def statistics(monitors: Sequence[Monitor], *, now: datetime) -> dict[int, Statistics]:
    """Return the statistics of each monitor by its key, in four queries for any number of monitors."""
    window = Span(now - DAY, now)
    ids = [monitor.pk for monitor in monitors]
    latencies = average_latency(ids, since=window.start)
    gaps = gaps_since(window.start)
    transitions = transitions_since(window.start, ids)
    return {
        monitor.pk: Statistics(
            tally([window], transitions[monitor.pk], status_interval_of(monitor), gaps)[0].percent,
            latencies.get(monitor.pk),
        )
        for monitor in monitors
    }


def gaps_since(start: datetime) -> list[Span]:
    """Return the periods since `start` in which Pulsekeeper itself was stopped."""
    gaps = SchedulerGap.objects.filter(ended_at__gt=start)
    return [Span(gap.started_at, gap.ended_at) for gap in gaps]


def transitions_since(start: datetime, monitor_ids: Sequence[int]) -> dict[int, list[Transition]]:
    """Return the transitions of each monitor that affect its uptime.

    Those between up and slow do not, and an unstable monitor has one for every check. There is no upper bound: a
    worker's clock may be ahead of ours, and a transition in the next second shows the status until now. The order is
    the order of writing, under the lock of the monitor's state.
    """
    passing = (Verdict.UP, Verdict.SLOW)
    changes = (
        StatusChange.objects.filter(monitor__in=monitor_ids, at__gte=start)
        .exclude(kind=StatusChange.Kind.STATUS, before__in=passing, after__in=passing)
        .order_by("pk")
    )
    transitions: dict[int, list[Transition]] = defaultdict(list)
    for monitor_id, kind, at, before, after, failing_since in changes.values_list(
        "monitor_id", "kind", "at", "before", "after", "failing_since"
    ):
        transitions[monitor_id].append(
            Transition(
                at,
                StatusInterval(_verdict(before), paused=kind == StatusChange.Kind.RESUMED),
                StatusInterval(_verdict(after), paused=kind == StatusChange.Kind.PAUSED),
                began=failing_since if after == Verdict.DOWN else None,
            )
        )
    return transitions


def left_out_since(start: datetime, monitor_ids: Sequence[int]) -> dict[int, list[Span]]:
    """Return the maintenance periods of each monitor since `start`, including planned ends."""
    spans: dict[int, list[Span]] = defaultdict(list)
    found = MaintenanceSpan.objects.filter(monitor__in=monitor_ids, ended_at__gt=start)
    for monitor_id, started_at, ended_at in found.values_list("monitor_id", "started_at", "ended_at"):
        spans[monitor_id].append(Span(started_at, ended_at))
    return spans


def began_at(state: MonitorState) -> datetime | None:
    """Return when the status began. An outage begins with its first failed check, like its incident."""
    return (state.failing_since if state.status == Verdict.DOWN else None) or state.status_since


def failing_since(monitor: Monitor, *, now: datetime) -> datetime | None:
    """Return when the checks of a monitor that is not down began to fail, or None if the last one passed.

    A muted heartbeat is not judged before the mute ends: it fails from its deadline on, or from a later change of its
    schedule.
    """
    state = monitor.state
    if not monitor.enabled or state.status == Verdict.DOWN:
        return None
    if state.failing_since is None and monitor.kind.waits:
        muted = monitor.muted_until is not None and monitor.muted_until > now
        due_at = monitor.ping_due_at(muted=False)
        return due_at if muted and due_at is not None and due_at < now else None
    return state.failing_since


def failing(now: datetime) -> Q:
    """Match the monitors for which `failing_since` returns a time."""
    second = Value(timedelta(seconds=1))
    grace_sec = Cast(KT("config__grace_sec"), IntegerField())
    due_at = Greatest(
        ExpressionWrapper(
            F("state__last_ping_at") + (F("interval_sec") + grace_sec) * second, output_field=DateTimeField()
        ),
        F("state__armed_at"),
    )
    overdue = Q(LessThan(due_at, now), type__in=types.waiting(), muted_until__gt=now, state__last_ping_at__isnull=False)
    return Q(Q(state__failing_since__isnull=False) | overdue, ~Q(state__status=Verdict.DOWN), enabled=True)


def status_interval_of(monitor: Monitor) -> StatusInterval:
    return StatusInterval(_verdict(monitor.state.status), paused=not monitor.enabled)


def _verdict(status: str | None) -> Verdict | None:
    return None if status is None else Verdict(status)


def last_tick() -> datetime | None:
    """Return when the scheduler last ran, or None."""
    return SchedulerTick.objects.values_list("at", flat=True).first()
