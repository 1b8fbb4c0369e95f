from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, rows_of, serialized
from accounts.models import User
from accounts.services import addresses_of
from incidents.models import IncidentEvent, MaintenanceWindow
from incidents.selectors import TIMELINE, list_incidents
from incidents.serializers import IncidentEventSerializer, IncidentSerializer, WindowSerializer
from projects.access import Caller


def sections(user: User, *, now: datetime) -> Sections:
    windows = MaintenanceWindow.objects.filter(owner=user).select_related("project")
    owned = list_incidents(Caller(user)).filter(owner=user).prefetch_related(TIMELINE)
    written = IncidentEvent.objects.filter(data__by__in=addresses_of(user)).exclude(incident__owner=user)
    return {
        "maintenance_windows": lambda: serialized(
            windows.prefetch_related("monitors"), WindowSerializer, context={"now": now}
        ),
        "incidents": lambda: rows_of(
            owned,
            lambda incident: (
                IncidentSerializer(incident).data
                | {"events": IncidentEventSerializer(incident.events.all(), many=True).data}
            ),
        ),
        "written_in_incidents_of_others": lambda: rows_of(
            written.select_related("incident"),
            lambda event: {
                "incident_id": event.incident.public_id,
                **IncidentEventSerializer().to_representation(event),
            },
        ),
    }
