from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import chain

from django.db.models import QuerySet
from rest_framework import serializers

from accounts.export import Rows, Sections, columns_of, serialized
from accounts.models import User
from core.api.fields import EpochMsField
from core.db import chunks, release_outside_transaction
from monitors import types
from monitors.check_ids import CheckIds
from monitors.heartbeats.history import pings_of
from monitors.heartbeats.log import ID_PREFIX
from monitors.history_views import DnsChangeSerializer, PingSerializer
from monitors.models import (
    DailyUptime,
    DnsAnswer,
    DnsChange,
    ExpiryWarning,
    MaintenanceSpan,
    Monitor,
    PingExcess,
    StatusChange,
)
from monitors.selectors import list_monitors
from monitors.serializers import serialize_monitors
from projects.access import Caller, owned

PINGS_PER_QUERY = 100  # each may have 10 KB


class StatusChangeSerializer(serializers.ModelSerializer[StatusChange]):
    at = EpochMsField()

    class Meta:
        model = StatusChange
        fields = ("at", "kind", "before", "after", "reason_code", "detail")


class PingExcessSerializer(serializers.ModelSerializer[PingExcess]):
    at = EpochMsField()

    class Meta:
        model = PingExcess
        fields = ("at", "text")


def sections(user: User, *, now: datetime) -> Sections:
    monitors = owned(list_monitors(Caller(user)), user)
    heartbeats = monitors.filter(type__in=types.waiting())
    excesses = PingExcess.objects.select_related("monitor")
    monitor = {"monitor_id": "monitor__public_id"}

    def status_changes(monitor: Monitor) -> Rows:
        return serialized(StatusChange.objects.filter(monitor=monitor), StatusChangeSerializer)

    def dns_changes(monitor: Monitor) -> Rows:
        return serialized(DnsChange.objects.filter(monitor=monitor), DnsChangeSerializer)

    return {
        "monitors": chain.from_iterable(map(partial(serialize_monitors, caller=None), chunks(monitors))),
        "status_changes": _of_each(monitors, status_changes),
        "dns_changes": _of_each(monitors, dns_changes),
        "pings": _of_each(heartbeats, lambda heartbeat: _pings(heartbeat, until=now)),
        "ping_excesses": serialized(owned(excesses, user), PingExcessSerializer, monitor_id="monitor.public_id"),
        "days": _of_each(monitors, _days),
        "dns_answers": columns_of(owned(DnsAnswer.objects.all(), user), **monitor, since="since", records="records"),
        "expiry_warnings": columns_of(
            owned(ExpiryWarning.objects.all(), user),
            **monitor,
            subject="subject",
            expires_at="expires_at",
            threshold_days="threshold_days",
            at="at",
        ),
        "recorded_maintenance": columns_of(
            owned(MaintenanceSpan.objects.all(), user), **monitor, started_at="started_at", ended_at="ended_at"
        ),
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


def _days(monitor: Monitor) -> Rows:
    days = list(DailyUptime.objects.filter(monitor=monitor).order_by("day"))
    release_outside_transaction()
    return [
        {"date": day.day.isoformat(), "observed_ms": day.observed_ms, "down_ms": day.down_ms, "outages": day.outages}
        for day in days
    ]
