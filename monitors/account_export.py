from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import QuerySet

from accounts.export import Sections
from accounts.models import User
from core.clock import to_ms
from core.db import chunks, release_outside_transaction
from monitors import types
from monitors.check_ids import CheckIds
from monitors.heartbeats.history import pings_of
from monitors.heartbeats.log import ID_PREFIX
from monitors.models import DailyUptime, DnsChange, Monitor, PingExcess, StatusChange
from monitors.selectors import list_monitors
from monitors.serializers import serialize_monitors
from projects.access import Caller

MONITORS_PER_QUERY = 20
PINGS_PER_QUERY = 100  # each may have 10 KB


def sections(user: User, *, now: datetime) -> Sections:
    owned = list_monitors(Caller(user)).filter(owner=user)
    return {
        "monitors": lambda: chain.from_iterable(map(serialize_monitors, chunks(owned))),
        "status_changes": lambda: _status_changes(owned),
        "dns_changes": lambda: _dns_changes(owned),
        "pings": lambda: _pings(owned, until=now),
        "ping_excesses": lambda: _ping_excesses(owned),
        "days": lambda: _days(owned),
    }


def _status_changes(owned: QuerySet[Monitor]) -> Iterator[dict[str, Any]]:
    """Read the changes of each monitor separately, by its history index. One query for all would sort every row."""
    for monitor in chain.from_iterable(chunks(owned)):
        for change in chain.from_iterable(chunks(StatusChange.objects.filter(monitor=monitor))):
            yield {
                "monitor_id": monitor.public_id,
                "at": to_ms(change.at),
                "kind": change.kind,
                "before": change.before,
                "after": change.after,
                "reason_code": change.reason_code,
                "detail": change.detail,
            }


def _dns_changes(owned: QuerySet[Monitor]) -> Iterator[dict[str, Any]]:
    for monitor in chain.from_iterable(chunks(owned)):
        for change in chain.from_iterable(chunks(DnsChange.objects.filter(monitor=monitor))):
            yield {
                "monitor_id": monitor.public_id,
                "at": to_ms(change.at),
                "added": change.added,
                "removed": change.removed,
                "added_count": change.added_count,
                "removed_count": change.removed_count,
            }


def _pings(owned: QuerySet[Monitor], *, until: datetime) -> Iterator[dict[str, Any]]:
    """Read signals from before `until`, because a monitor may move to another owner during the export."""
    for monitor in chain.from_iterable(chunks(owned.filter(type__in=types.waiting()))):
        before = until, 0
        ids = CheckIds(monitor.public_id, prefix=ID_PREFIX)
        while pings := pings_of(monitor, limit=PINGS_PER_QUERY, before=before):
            before = pings[-1].at, pings[-1].id
            release_outside_transaction()
            for ping in pings:
                yield {
                    "monitor_id": monitor.public_id,
                    "id": ids.encode(ping.id, ping.at),
                    "at": to_ms(ping.at),
                    "kind": ping.kind,
                    "exit_status": ping.exit_status,
                    "duration_ms": ping.duration_ms,
                    "rid": None if ping.rid is None else str(ping.rid),
                    "method": ping.method,
                    "user_agent": ping.user_agent,
                    "remote_addr": ping.remote_addr,
                    "body": ping.body,
                }


def _ping_excesses(owned: QuerySet[Monitor]) -> Iterator[dict[str, Any]]:
    for excess in chain.from_iterable(chunks(PingExcess.objects.filter(monitor__in=owned).select_related("monitor"))):
        yield {"monitor_id": excess.monitor.public_id, "at": to_ms(excess.at), "text": excess.text}


def _days(owned: QuerySet[Monitor]) -> Iterator[dict[str, Any]]:
    for some in chunks(owned):
        for start in range(0, len(some), MONITORS_PER_QUERY):
            ids = {monitor.pk: monitor.public_id for monitor in some[start : start + MONITORS_PER_QUERY]}
            days = list(DailyUptime.objects.filter(monitor_id__in=ids).order_by("monitor_id", "day"))
            release_outside_transaction()
            for day in days:
                yield {
                    "monitor_id": ids[day.monitor_id],
                    "date": day.day.isoformat(),
                    "observed_ms": day.observed_ms,
                    "down_ms": day.down_ms,
                    "outages": day.outages,
                }
