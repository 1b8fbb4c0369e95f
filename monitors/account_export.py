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
from monitors.models import DailyUptime, Monitor, StatusChange
from monitors.selectors import list_monitors
from monitors.serializers import serialize_monitors
from projects.access import Caller

MONITORS_PER_QUERY = 20


def sections(user: User, *, now: datetime) -> Sections:
    owned = list_monitors(Caller(user)).filter(owner=user)
    return {
        "monitors": lambda: chain.from_iterable(map(serialize_monitors, chunks(owned))),
        "status_changes": lambda: _status_changes(owned),
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
