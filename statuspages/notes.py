"""What people write on a status page about an incident. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from core.errors import NoteResolved, ValidationFailed
from incidents.models import Incident
from projects.access import Caller
from statuspages import events
from statuspages.locks import changed, hold
from statuspages.models import NoteUpdate, PageNote, StatusPage
from statuspages.selectors import get_note, showable

Status = NoteUpdate.Status


def write_note(caller: Caller, page_id: str, given: Mapping[str, Any], *, now: datetime) -> PageNote:
    """A new note with its first update. Subscribers are told of it."""
    with transaction.atomic():
        page = hold(caller, page_id)
        note = PageNote.objects.create(
            page=page,
            incident=_incident(page, given.get("incident_id")),
            title=given["title"],
            created_at=now,
        )
        _update(page, note, given, now=now)
        return get_note(page, note.public_id)


def add_update(
    caller: Caller, page_id: str, note_id: str, given: Mapping[str, Any], *, now: datetime
) -> PageNote:
    """Raises NoteResolved for a note that is over."""
    with transaction.atomic():
        page = hold(caller, page_id)
        note = get_note(page, note_id)
        if note.resolved_at is not None:
            raise NoteResolved
        _update(page, note, given, now=now)
        return get_note(page, note_id)


def delete_note(caller: Caller, page_id: str, note_id: str) -> None:
    """Mails that are on their way still arrive."""
    with transaction.atomic():
        page = hold(caller, page_id)
        get_note(page, note_id).delete()
        changed(page)


def _update(page: StatusPage, note: PageNote, given: Mapping[str, Any], *, now: datetime) -> None:
    update = NoteUpdate.objects.create(note=note, status=given["status"], text=given["text"], at=now)
    if update.status == Status.RESOLVED:
        note.resolved_at = now
        note.save(update_fields=["resolved_at"])
    changed(page)
    events.add_update_event(page, note, update)


def _incident(page: StatusPage, incident_id: str | None) -> Incident | None:
    """Of a monitor that the page shows: any other would tell of what is nobody's business there."""
    if incident_id is None:
        return None
    shown = showable().filter(page=page).values("monitor")
    incident = Incident.objects.filter(public_id=incident_id, monitor__in=shown).first()
    if incident is None:
        raise ValidationFailed("no monitor of this page has such an incident.", field="incident_id")
    return incident
