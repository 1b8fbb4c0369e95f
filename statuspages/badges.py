"""A monitor's badges: made and taken away by who keeps the monitor, seen by whoever knows the key."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from checks.results.selectors import average_latency
from core.errors import NotFound
from core.ids import badge_key
from monitors.models import MonitorState
from monitors.selectors import get_monitor, statistics
from monitors.uptime.daily import daily_uptimes
from projects.access import Caller
from statuspages import shields
from statuspages.models import Badge
from statuspages.selectors import find_badge, get_badge

_DAYS = {"uptime-7d": 7, "uptime-30d": 30, "uptime-90d": 90}


def give_badge(caller: Caller, monitor_id: str, *, now: datetime) -> Badge:
    """The monitor's badge, a new one where it had none."""
    with transaction.atomic():
        monitor = get_monitor(caller, monitor_id)
        # As whoever deletes the monitor does.
        if not MonitorState.objects.select_for_update(no_key=True).filter(pk=monitor.pk).exists():
            raise NotFound
        Badge.objects.bulk_create(
            [Badge(monitor=monitor, key=badge_key(), created_at=now)], ignore_conflicts=True
        )
        return get_badge(caller, monitor_id)


def take_badge(caller: Caller, monitor_id: str) -> None:
    """Its key shows nothing any more, and comes back with no later badge."""
    badge = get_badge(caller, monitor_id)
    Badge.objects.filter(pk=badge.pk, key=badge.key).delete()


def draw(key: str, name: str, *, now: datetime) -> bytes:
    """The picture `name` of a badge: status, uptime-24h, uptime-7d, uptime-30d, uptime-90d or latency.

    Nothing of the monitor but that is in it. Raises NotFound for an unknown key and for an unknown name alike.
    """
    monitor = find_badge(key)
    if name == "status":
        status = "paused" if not monitor.enabled else monitor.state.status or "unknown"
        drawn = shields.shield("status", status, shields.STATUS_KINDS[status])
    elif name == "latency":
        latency = average_latency([monitor.pk], since=now - timedelta(hours=24)).get(monitor.pk)
        drawn = shields.shield("latency", "no data" if latency is None else f"{latency:.0f} ms", "idle")
    elif name == "uptime-24h":
        drawn = _uptime("uptime 24h", statistics([monitor], now=now)[monitor.pk].uptime_24h)
    elif name in _DAYS:
        days = _DAYS[name]
        history = daily_uptimes([monitor], days=days, now=now)[monitor.pk]
        drawn = _uptime(f"uptime {days}d", history.percent())
    else:
        raise NotFound
    return drawn.encode()


def _uptime(label: str, percent: float | None) -> str:
    shown = "no data" if percent is None else f"{percent:.2f}".rstrip("0").rstrip(".") + "%"
    return shields.shield(label, shown, shields.uptime_kind(percent))
