"""Badges of monitors as small SVGs, public for everyone who knows the badge's key."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from checks.results.series import average_latency
from core.db import get_or_not_found
from core.errors import NotFound
from core.ids import badge_key
from monitors.models import Monitor
from monitors.partial import failing_from
from monitors.selectors import get_monitor, status_of, uptimes
from monitors.services import lock_monitors
from monitors.uptime.daily import daily_uptimes
from projects.access import Caller
from statuspages.models import Badge
from statuspages.selectors import get_badge

_DAYS = {"uptime-7d": 7, "uptime-30d": 30, "uptime-90d": 90}
NAMES = ("status", "uptime-24h", *_DAYS, "latency")
_COLOURS = {"up": "#0d7350", "slow": "#8a5300", "degraded": "#8a5300", "down": "#bb2025", "idle": "#575f6d"}
_LABEL = "#343a46"
_PADDING = 6
# Widths in Verdana at 11 px. `textLength` makes them exact in every other font.
_WIDE, _NARROW = frozenset("mwMW%@"), frozenset("iljtfrI.,:;|!'()[] 1")


def create_badge(caller: Caller, monitor_id: str, *, now: datetime) -> Badge:
    """Return the monitor's badge, created if it has none."""
    with transaction.atomic():
        monitor = lock_monitors(caller, [monitor_id]).get(monitor_id)
        if monitor is None:
            raise NotFound
        caller.require_write(monitor)
        Badge.objects.bulk_create([Badge(monitor=monitor, key=badge_key(), created_at=now)], ignore_conflicts=True)
        return get_badge(caller, monitor_id)


def delete_badge(caller: Caller, monitor_id: str) -> None:
    """Delete the badge. A later one gets another key."""
    caller.require_write(get_monitor(caller, monitor_id))
    badge = get_badge(caller, monitor_id)
    Badge.objects.filter(pk=badge.pk, key=badge.key).delete()


def draw(key: str, name: str, *, now: datetime) -> bytes:
    """Return the SVG of one of NAMES. Raises NotFound for an unknown key and for an unknown name."""
    if name not in NAMES:
        raise NotFound
    monitor = get_or_not_found(Monitor.objects.select_related("state"), badge__key=key)
    if name == "status":
        status = "paused" if not monitor.enabled else status_of(monitor, now=now) or "unknown"
        if status in ("up", "slow") and failing_from([monitor]):
            status = "degraded"
        return _shield("status", status, status if status in _COLOURS else "idle")
    if name == "latency":
        latency = average_latency([monitor.pk], since=now - timedelta(hours=24)).get(monitor.pk)
        return _shield("latency", "no data" if latency is None else f"{latency:.0f} ms", "idle")
    if name in _DAYS:
        by_status = daily_uptimes([monitor], days=_DAYS[name], now=now, with_status=True)[monitor.pk].by_status
        percent = None if by_status is None else by_status.percent()
    else:
        percent = uptimes([monitor], now=now)[monitor.pk]
    label = name.replace("-", " ")
    if percent is None:
        return _shield(label, "no data", "idle")
    shown = f"{percent:.2f}".rstrip("0").rstrip(".") + "%"
    return _shield(label, shown, "up" if percent >= 99.5 else "slow" if percent >= 95 else "down")


def _shield(label: str, value: str, kind: str) -> bytes:
    """Return a badge as SVG. `label` and `value` are not escaped; `kind` is a key of _COLOURS."""
    left, right = _width(label), _width(value)
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {value}">'
        f"<title>{label}: {value}</title>"
        f'<clipPath id="r"><rect width="{width}" height="20" rx="4"/></clipPath>'
        f'<g clip-path="url(#r)"><path fill="{_LABEL}" d="M0 0h{left}v20H0z"/>'
        f'<path fill="{_COLOURS[kind]}" d="M{left} 0h{right}v20H{left}z"/></g>'
        '<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14" textLength="{left - 2 * _PADDING}">{label}</text>'
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - 2 * _PADDING}">{value}</text></g></svg>'
    ).encode()


def _width(text: str) -> int:
    width = sum(10.0 if c in _WIDE else 4.2 if c in _NARROW else 7.0 for c in text)
    return round(width) + 2 * _PADDING
