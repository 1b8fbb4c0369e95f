from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from accounts.services import addresses_of
from incidents.models import FlappingSpell, IncidentEvent, MaintenanceWindow
from incidents.selectors import TIMELINE, list_incidents
from incidents.serializers import IncidentEventSerializer, IncidentSerializer, WindowSerializer
from projects.access import Caller, owned


class IncidentWithTimelineSerializer(IncidentSerializer):
    events = IncidentEventSerializer(source="events.all", many=True)


def sections(user: User, *, now: datetime) -> Sections:
    windows = MaintenanceWindow.objects.select_related("project").prefetch_related("monitors")
    caller = Caller(user)
    incidents = list_incidents(caller).prefetch_related(TIMELINE)
    written = IncidentEvent.objects.filter(data__by__in=addresses_of(user)).exclude(incident__owner=user)
    return {
        "maintenance_windows": serialized(
            owned(windows, user), WindowSerializer, context={"now": now, "caller": caller}
        ),
        "incidents": serialized(owned(incidents, user), IncidentWithTimelineSerializer),
        "written_in_incidents_of_others": serialized(
            written.select_related("incident"), IncidentEventSerializer, incident_id="incident.public_id"
        ),
        "flapping_spells": columns_of(
            owned(FlappingSpell.objects.all(), user),
            monitor_id="monitor__public_id",
            started_at="started_at",
            last_change_at="last_change_at",
            ended_at="ended_at",
        ),
    }
