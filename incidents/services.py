"""Acknowledge, comment, declare and resolve incidents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KT

from accounts.models import User
from accounts.services import GONE, addresses_of
from core.db import get_or_not_found, lock_against_deletion
from core.errors import IncidentResolved, LimitReached, NotFound, ResolvesByItself
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from incidents.selectors import get_incident
from monitors.locking import lock_monitors
from monitors.models import Monitor
from projects.access import Caller
from projects.placement import place

Type = IncidentEvent.Type
DELETED_AT_ONCE = 500
MAX_COMMENTS = 200
"""Limit of comments on an incident."""


on_acknowledged: list[Callable[[Incident, datetime], None]] = []
"""Called in the transaction of an acknowledgement, which has locked the incident. Filled by higher layers."""


def acknowledge(caller: Caller, public_id: str, *, now: datetime) -> Incident:
    """Acknowledge an incident. The first acknowledgement counts; others change nothing."""
    with transaction.atomic():
        keep_account(caller.user)
        incident = lock_incident(caller, public_id)
        if not incident.is_open:
            raise IncidentResolved
        _acknowledge(incident, caller.user, now=now)
        return get_incident(caller, public_id)


def acknowledge_by_link(user: User, incident_id: int, *, now: datetime) -> None:
    """Acknowledge an incident for the person of a link, a viewer too. Nothing happens if it is resolved."""
    with transaction.atomic():
        keep_account(user)
        incident = get_or_not_found(Incident.objects.select_for_update(no_key=True), pk=incident_id)
        if incident.is_open:
            _acknowledge(incident, user, now=now, way="link")


def _acknowledge(incident: Incident, user: User, *, now: datetime, way: str = "") -> None:
    if incident.acknowledged_at is not None:
        return
    incident.acknowledged_at, incident.acknowledged_by = now, user
    incident.save(update_fields=["acknowledged_at", "acknowledged_by"])
    text = f"Acknowledged by {user.email}{', with the link of a message' if way else ''}."
    data = {"by": user.email} | ({"way": way} if way else {})
    incident.events.create(type=Type.ACKNOWLEDGED, text=text, at=now, data=data)
    for follow in on_acknowledged:
        follow(incident, now)


def keep_account(user: User) -> None:
    """Lock an account that the incident is to refer to, before the incident. Raises NotFound if it was deleted."""
    if not lock_against_deletion(User, [user.pk], wait=True):
        raise NotFound


def comment(caller: Caller, public_id: str, *, text: str, now: datetime) -> Incident:
    """Add a comment, also to a resolved incident: lessons are often written down afterwards."""
    with transaction.atomic():
        incident = lock_incident(caller, public_id)
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
        incident = lock_incident(caller, public_id)
        if incident.monitor_public_id:
            raise ResolvesByItself
        if incident.is_open:
            incident.resolved_at, incident.resolution = now, Incident.Resolution.CLOSED
            incident.save(update_fields=["resolved_at", "resolution"])
            _note(incident, Type.RESOLVED, f"Resolved by {caller.user.email}.", caller, now)
        return get_incident(caller, public_id)


def delete_some_of(user: User) -> bool:
    """Delete incidents of an account, whose monitors are deleted. Return whether more may be left."""
    with transaction.atomic():
        ids = list(Incident.objects.filter(owner=user).order_by().values_list("pk", flat=True)[:DELETED_AT_ONCE])
        _lock_all(Incident.objects.filter(pk__in=ids))
        Incident.objects.filter(pk__in=ids).delete()
    return len(ids) == DELETED_AT_ONCE


def forget_person(user: User) -> None:
    """Remove a deleted account's name from the timelines of others' incidents. Comments stay."""
    addresses = addresses_of(user)
    # Two queries, because each of them has an index.
    acted = IncidentEvent.objects.alias(by=KT("data__by")).filter(by__in=addresses)
    notified = reduce(or_, (Q(data__people__contains=[address]) for address in addresses), Q())
    found = IncidentEvent.objects.filter(notified, data__has_key="people")
    others = {event.pk: event for rows in (acted, found) for event in rows.exclude(incident__owner=user)}
    for event in others.values():
        for address in addresses:
            if event.type != Type.COMMENTED:
                event.text = event.text.replace(address, GONE)
            if address in event.data.get("people", ()):
                event.data["people"] = [GONE if one == address else one for one in event.data["people"]]
            if event.data.get("by") == address:
                event.data["by"] = GONE
    IncidentEvent.objects.bulk_update(others.values(), ["text", "data"], batch_size=500)


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


def lock_incident(caller: Caller, public_id: str) -> Incident:
    """Return the incident, locked and read after locking, to see a concurrent recovery of the monitor.

    Raises ReadOnly if the caller must not change it.
    """
    found = get_incident(caller, public_id)
    caller.require_write(found)
    return get_or_not_found(Incident.objects.select_for_update(no_key=True), pk=found.pk)


def _note(incident: Incident, kind: Type, text: str, caller: Caller, now: datetime) -> None:
    incident.events.create(type=kind, text=text, at=now, data={"by": caller.user.email})
