from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import incidents.selectors
from accounts.export import Sections, rows_of, serialized
from accounts.models import User
from accounts.services import addresses_of
from incidents.models import IncidentEvent, MaintenanceWindow
from incidents.serializers import IncidentEventSerializer, IncidentSerializer, WindowSerializer
from projects.access import Caller


def sections(user: User, *, now: datetime) -> Sections:
    windows = MaintenanceWindow.objects.filter(owner=user).select_related("project")
    owned = incidents.selectors.list_incidents(Caller(user)).filter(owner=user)
    written = IncidentEvent.objects.filter(data__by__in=addresses_of(user)).exclude(incident__owner=user)
    return {
        "maintenance_windows": lambda: serialized(
            windows.prefetch_related("monitors"), WindowSerializer, context={"now": now}
        ),
        "incidents": lambda: rows_of(
            owned.prefetch_related("events"),
            lambda incident: IncidentSerializer(incident).data | {"events": _events(incident.events.all())},
        ),
        "written_in_incidents_of_others": lambda: rows_of(
            written.select_related("incident"),
            lambda event: {"incident_id": event.incident.public_id, **_events([event])[0]},
        ),
    }


def _events(events: Iterable[IncidentEvent]) -> Any:
    return IncidentEventSerializer(sorted(events, key=lambda event: event.pk), many=True).data
