"""Acknowledge, comment, declare and resolve incidents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.services import GONE, addresses_of
from core.db import get_or_not_found
from core.errors import IncidentResolved, LimitReached, ResolvesByItself
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from incidents.selectors import get_incident
from monitors.locking import lock_monitors
from monitors.models import Monitor
from projects.access import Caller
from projects.placement import place

Type = IncidentEvent.Type
MAX_COMMENTS = 200
"""Limit of comments on an incident."""


def acknowledge(caller: Caller, public_id: str, *, now: datetime) -> Incident:
    """Acknowledge an incident. The first acknowledgement counts; others change nothing."""
    with transaction.atomic():
        incident = _lock(caller, public_id)
        if not incident.is_open:
            raise IncidentResolved
        if incident.acknowledged_at is None:
            incident.acknowledged_at = now
            incident.save(update_fields=["acknowledged_at"])
            _note(incident, Type.ACKNOWLEDGED, f"Acknowledged by {caller.user.email}.", caller, now)
        return get_incident(caller, public_id)


def comment(caller: Caller, public_id: str, *, text: str, now: datetime) -> Incident:
    """Add a comment, also to a resolved incident: lessons are often written down afterwards."""
    with transaction.atomic():
        incident = _lock(caller, public_id)
        if incident.events.filter(type=Type.COMMENTED).count() >= MAX_COMMENTS:
            raise LimitReached("The limit of comments per incident is reached.", limit=MAX_COMMENTS)
        _note(incident, Type.COMMENTED, text, caller, now)
        return get_incident(caller, public_id)


def declare(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> Incident:
    """Create an incident that no monitor found, from `title`, `text` and `project_id`."""
    with transaction.atomic():
        project, owner = place(caller, given)
        incident = Incident.objects.create(
            owner=owner, project=project, name=given["title"], detail=given["text"], started_at=now
        )
        _note(incident, Type.DECLARED, given["text"], caller, now)
        return get_incident(caller, incident.public_id)


def resolve(caller: Caller, public_id: str, *, now: datetime) -> Incident:
    """Resolve a declared incident. The first call counts."""
    with transaction.atomic():
        incident = _lock(caller, public_id)
        if incident.monitor_public_id:
            raise ResolvesByItself
        if incident.is_open:
            incident.resolved_at, incident.resolution = now, Incident.Resolution.CLOSED
            incident.save(update_fields=["resolved_at", "resolution"])
            _note(incident, Type.RESOLVED, f"Resolved by {caller.user.email}.", caller, now)
        return get_incident(caller, public_id)


def forget_person(user: User) -> None:
    """Remove a deleted account's name from the acknowledgements and resolutions of others. Comments stay."""
    events = list(IncidentEvent.objects.filter(data__by__in=addresses_of(user)).exclude(incident__owner=user))
    for event in events:
        if event.type in (Type.ACKNOWLEDGED, Type.RESOLVED):
            event.text = event.text.replace(event.data["by"], GONE)
        event.data["by"] = GONE
    IncidentEvent.objects.bulk_update(events, ["text", "data"], batch_size=500)


def lock_windows_of(user: User) -> None:
    """Lock the own windows of an account that is being deleted, after the states of its monitors."""
    lock_monitors(Monitor.objects.filter(owner=user).values_list("pk", flat=True), Monitor.objects.none())
    _lock_all(MaintenanceWindow.objects.filter(owner=user, project=None))


def lock_of_monitors(monitor_ids: Collection[int]) -> None:
    """Lock the incidents of monitors that are being deleted."""
    _lock_all(Incident.objects.filter(monitor__in=monitor_ids))


def lock_of_projects(project_ids: Collection[int]) -> None:
    """Lock the windows, then the incidents of projects that are being deleted."""
    _lock_all(MaintenanceWindow.objects.filter(project__in=project_ids))
    _lock_all(Incident.objects.filter(project__in=project_ids))


def _lock_all(rows: QuerySet[Any]) -> None:
    list(rows.select_for_update().order_by("pk").values_list("pk"))


def _lock(caller: Caller, public_id: str) -> Incident:
    """Return the incident, locked and read after locking, to see a concurrent recovery of the monitor."""
    found = get_incident(caller, public_id)
    caller.require_write(found)
    return get_or_not_found(Incident.objects.select_for_update(no_key=True), pk=found.pk)


def _note(incident: Incident, kind: Type, text: str, caller: Caller, now: datetime) -> None:
    incident.events.create(type=kind, text=text, at=now, data={"by": caller.user.email})
