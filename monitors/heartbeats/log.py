"""The log of signals: one row for each, including those that change nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Max

from checks.results.partitions import Series
from core.bulk import array
from core.db import fetch_prepared
from monitors.heartbeats.incoming import Signal
from monitors.heartbeats.runs import MICROSECOND
from monitors.models import Monitor, Ping

ID_PREFIX = "png_"
PINGS = Series("monitors_ping", "at")
_TIMES_AT_ONCE = 100

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
    """A stored signal: the heartbeat's key, its time, and the duration of the run that it ended."""

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


def last_signal(monitor: Monitor, rid: UUID, *, is_start: bool) -> datetime | None:
    """Return when the run with this rid started, or ended, if that was its last signal."""
    signals = Ping.objects.filter(monitor_id=monitor.pk, rid=rid).exclude(kind=Ping.Kind.LOG)
    kind, at = signals.order_by("-at", "-id").values_list("kind", "at").first() or (None, None)
    return at if (kind == Ping.Kind.START) is is_start else None


def free_time(monitor: Monitor, before: datetime, taken: Collection[datetime]) -> datetime:
    """Return the last time that is not after `before` and that no signal has. `taken` are those not in the log yet."""
    times = set(taken)
    logged = Ping.objects.filter(monitor_id=monitor.pk).order_by("-at").values_list("at", flat=True)
    while True:
        times.update(logged.filter(at__lte=before)[:_TIMES_AT_ONCE])
        last = before - _TIMES_AT_ONCE * MICROSECOND
        while before > last:
            if before not in times:
                return before
            before -= MICROSECOND


def hide_earlier(monitors: Collection[Monitor], *, now: datetime) -> None:
    """Set `owned_since` of monitors that move to another owner. Their states are locked; the caller writes the column.

    Signals that were recorded while this transaction waited for the locks may be later than `now`.
    """
    later = Ping.objects.filter(monitor_id__in=[monitor.pk for monitor in monitors], at__gte=now)
    last = later.aggregate(last=Max("at"))["last"]
    for monitor in monitors:
        monitor.owned_since = now if last is None else last + MICROSECOND
