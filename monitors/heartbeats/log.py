"""The log of signals: one row for each, whatever it changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Max, Q, QuerySet

from checks.results.partitions import Series
from core.bulk import array
from core.db import fetch_prepared
from monitors.heartbeats.incoming import Signal
from monitors.heartbeats.runs import MICROSECOND
from monitors.models import Monitor, Ping

ID_PREFIX = "png_"
PINGS = Series("monitors_ping", "at")

_INSERT = """
    INSERT INTO monitors_ping
           (monitor_id, at, duration_ms, exit_status, body_dropped, kind, method, rid, remote_addr, user_agent, body)
    SELECT *
      FROM unnest(%(monitor_ids)s::bigint[], %(times)s::timestamptz[], %(durations)s::bigint[],
                  %(exit_statuses)s::smallint[], %(drops)s::boolean[], %(kinds)s::text[], %(methods)s::text[],
                  %(rids)s::uuid[], %(addresses)s::inet[], %(user_agents)s::text[], %(bodies)s::text[])
    RETURNING monitor_id
"""


class Entry(NamedTuple):
    """A signal as it is stored: the heartbeat's key, its time, and the duration of the run that it ended."""

    monitor_id: int
    signal: Signal
    at: datetime
    duration_ms: int | None


def add(entries: Sequence[Entry]) -> None:
    """Add signals of heartbeats whose states the caller has locked."""
    if not entries:
        return
    signals = [entry.signal for entry in entries]
    values = {
        "monitor_ids": array(entry.monitor_id for entry in entries),
        "times": array(entry.at for entry in entries),
        "durations": array(entry.duration_ms for entry in entries),
        "exit_statuses": array(signal.target.exit_status for signal in signals),
        "drops": array(signal.body_dropped for signal in signals),
        "kinds": array(signal.target.kind.value for signal in signals),
        "methods": array(signal.method for signal in signals),
        "rids": array(signal.rid for signal in signals),
        "addresses": array(signal.remote_addr for signal in signals),
        "user_agents": array(signal.user_agent for signal in signals),
        "bodies": array(signal.body for signal in signals),
    }
    fetch_prepared(_INSERT, values)


def open_start(monitor: Monitor, rid: UUID) -> datetime | None:
    """Return when the run with this rid started, or None if it did not, or has ended."""
    kind, at = _last_of(monitor, rid)
    return at if kind == Ping.Kind.START else None


def last_end(monitor: Monitor, rid: UUID) -> datetime | None:
    """Return when the run with this rid ended, or None if it did not, or was started again."""
    kind, at = _last_of(monitor, rid)
    return at if kind != Ping.Kind.START else None


def _last_of(monitor: Monitor, rid: UUID) -> tuple[str | None, datetime | None]:
    signals = Ping.objects.filter(monitor_id=monitor.pk, rid=rid).exclude(kind=Ping.Kind.LOG)
    return signals.order_by("-at", "-id").values_list("kind", "at").first() or (None, None)


def pings_of(monitor: Monitor, *, limit: int, before: tuple[datetime, int] | None = None) -> list[Ping]:
    """Return the newest signals of a heartbeat. `before` is (at, id) of the previous page's last one."""
    pings = before_in(Ping.objects.filter(monitor_id=monitor.pk), before)
    return visible(monitor, pings.order_by("-at", "-id")[:limit])


def hide_earlier(monitors: Collection[Monitor], *, now: datetime) -> None:
    """Set `owned_since` of monitors that move to another owner. Their states are locked; the caller writes the column.

    Signals that were recorded while this transaction waited for the locks may be later than `now`.
    """
    later = Ping.objects.filter(monitor_id__in=[monitor.pk for monitor in monitors], at__gte=now)
    last = later.aggregate(last=Max("at"))["last"]
    for monitor in monitors:
        monitor.owned_since = now if last is None else last + MICROSECOND


def is_earlier(monitor: Monitor, ping: Ping) -> bool:
    """Return whether the heartbeat had another owner when it received the signal."""
    return monitor.owned_since is not None and ping.at < monitor.owned_since


def visible(monitor: Monitor, pings: Iterable[Ping]) -> list[Ping]:
    """Return signals as the heartbeat's owner may see them: those of earlier owners without sender and body."""
    found = list(pings)
    for ping in found:
        if is_earlier(monitor, ping):
            ping.remote_addr, ping.user_agent, ping.body = None, "", None
    return found


def before_in(pings: QuerySet[Ping], before: tuple[datetime, int] | None) -> QuerySet[Ping]:
    """Return the signals of the pages after the one that ends at `before`."""
    if before is None:
        return pings
    at, number = before
    return pings.filter(Q(at__lt=at) | Q(at=at, id__lt=number), at__lte=at)
