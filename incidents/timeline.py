"""The only way to write the timeline of an incident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from incidents.models import Incident, IncidentEvent


def event(
    incident: Incident,
    kind: IncidentEvent.Type,
    text: str,
    *,
    at: datetime,
    data: Mapping[str, Any] | None = None,
) -> IncidentEvent:
    """Return an unsaved event for `bulk_note`. `text` is a sentence for people, `data` for programs."""
    return IncidentEvent(incident=incident, type=kind, at=at, text=text, data=dict(data or {}))


def note(
    incident: Incident,
    kind: IncidentEvent.Type,
    text: str,
    *,
    at: datetime,
    data: Mapping[str, Any] | None = None,
) -> IncidentEvent:
    noted = event(incident, kind, text, at=at, data=data)
    noted.save(force_insert=True)
    return noted


def bulk_note(events: Iterable[IncidentEvent]) -> None:
    """Store events with one statement; the timeline keeps their order."""
    IncidentEvent.objects.bulk_create(events)
