from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from accounts.export import Rows, Sections, rows_of, serialized
from accounts.models import User
from core.api.fields import EpochMsField
from core.clock import to_ms
from core.db import chunks, release_outside_transaction
from monitors import types
from monitors.check_ids import CheckIds
from monitors.heartbeats.history import pings_of
from monitors.heartbeats.log import ID_PREFIX
from monitors.history_views import DnsChangeSerializer, PingSerializer
from monitors.models import DailyUptime, DnsChange, Monitor, PingExcess, StatusChange
from monitors.selectors import list_monitors
from monitors.serializers import serialize_monitors
from projects.access import Caller

PINGS_PER_QUERY = 100  # each may have 10 KB


class StatusChangeSerializer(serializers.ModelSerializer[StatusChange]):
    at = EpochMsField()

    class Meta:
        model = StatusChange
        fields = ("at", "kind", "before", "after", "reason_code", "detail")


def sections(user: User, *, now: datetime) -> Sections:
    owned = list_monitors(Caller(user)).filter(owner=user)
    waiting = owned.filter(type__in=types.waiting())
    excesses = PingExcess.objects.filter(monitor__in=owned).select_related("monitor")

    def status_changes(monitor: Monitor) -> Rows:
        return serialized(StatusChange.objects.filter(monitor=monitor), StatusChangeSerializer)

    def dns_changes(monitor: Monitor) -> Rows:
        return serialized(DnsChange.objects.filter(monitor=monitor), DnsChangeSerializer)

    return {
        "monitors": lambda: chain.from_iterable(map(serialize_monitors, chunks(owned))),
        "status_changes": lambda: _of_each(owned, status_changes),
        "dns_changes": lambda: _of_each(owned, dns_changes),
        "pings": lambda: _of_each(waiting, lambda heartbeat: _pings(heartbeat, until=now)),
        "ping_excesses": lambda: rows_of(excesses, _excess),
        "days": lambda: _of_each(owned, _days),
    }


def _of_each(monitors: QuerySet[Monitor], rows: Callable[[Monitor], Rows]) -> Rows:
    """Read the rows of each monitor separately, by its history index. One query for all would sort every row."""
    for monitor in chain.from_iterable(chunks(monitors)):
        for row in rows(monitor):
            yield {"monitor_id": monitor.public_id, **row}


def _pings(monitor: Monitor, *, until: datetime) -> Rows:
    """Read signals from before `until`, because a monitor may move to another owner during the export."""
    before = until, 0
    context = {"ids": CheckIds(monitor.public_id, prefix=ID_PREFIX)}
    while pings := pings_of(monitor, limit=PINGS_PER_QUERY, before=before):
        before = pings[-1].at, pings[-1].id
        release_outside_transaction()
        yield from PingSerializer(pings, many=True, context=context).data


def _excess(row: PingExcess) -> dict[str, Any]:
    return {"monitor_id": row.monitor.public_id, "at": to_ms(row.at), "text": row.text}


def _days(monitor: Monitor) -> Rows:
    days = list(DailyUptime.objects.filter(monitor=monitor).order_by("day"))
    release_outside_transaction()
    return [
        {"date": day.day.isoformat(), "observed_ms": day.observed_ms, "down_ms": day.down_ms, "outages": day.outages}
        for day in days
    ]
