"""Badges of monitors as small SVGs, public for everyone who knows the badge's key."""

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
from statuspages.models import Badge
from statuspages.selectors import find_badge, get_badge

_DAYS = {"uptime-7d": 7, "uptime-30d": 30, "uptime-90d": 90}
_COLOURS = {"up": "#0d7350", "slow": "#8a5300", "down": "#bb2025", "idle": "#575f6d"}
_LABEL = "#343a46"
_PADDING = 6
# Widths in Verdana at 11 px. `textLength` makes them exact in every other font.
_WIDE, _NARROW = frozenset("mwMW%@"), frozenset("iljtfrI.,:;|!'()[] 1")

_STATUS_KINDS = {"up": "up", "slow": "slow", "down": "down", "paused": "idle", "unknown": "idle"}


def create_badge(caller: Caller, monitor_id: str, *, now: datetime) -> Badge:
    """Return the monitor's badge, created if it has none."""
    with transaction.atomic():
        monitor = get_monitor(caller, monitor_id)
        # Deleting the monitor takes the same lock.
        if not MonitorState.objects.select_for_update(no_key=True).filter(pk=monitor.pk).exists():
            raise NotFound
        Badge.objects.bulk_create([Badge(monitor=monitor, key=badge_key(), created_at=now)], ignore_conflicts=True)
        return get_badge(caller, monitor_id)


def delete_badge(caller: Caller, monitor_id: str) -> None:
    """Delete the badge. A later one gets another key."""
    badge = get_badge(caller, monitor_id)
    Badge.objects.filter(pk=badge.pk, key=badge.key).delete()


def draw(key: str, name: str, *, now: datetime) -> bytes:
    """Return the SVG `name` of a badge: status, uptime-24h, uptime-7d, uptime-30d, uptime-90d or latency.

    Raises NotFound for an unknown key and for an unknown name.
    """
    monitor = find_badge(key)
    if name == "status":
        status = "paused" if not monitor.enabled else monitor.state.status or "unknown"
        drawn = _shield("status", status, _STATUS_KINDS[status])
    elif name == "latency":
        latency = average_latency([monitor.pk], since=now - timedelta(hours=24)).get(monitor.pk)
        drawn = _shield("latency", "no data" if latency is None else f"{latency:.0f} ms", "idle")
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
    return _shield(label, shown, _uptime_kind(percent))


def _shield(label: str, value: str, kind: str) -> str:
    """Return a badge as SVG. `label` and `value` are not escaped; `kind` is up, slow, down or idle."""
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
    )


def _uptime_kind(percent: float | None) -> str:
    if percent is None:
        return "idle"
    return "up" if percent >= 99.5 else "slow" if percent >= 95 else "down"


def _width(text: str) -> int:
    width = sum(10.0 if c in _WIDE else 4.2 if c in _NARROW else 7.0 for c in text)
    return round(width) + 2 * _PADDING
