from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, serialized
from accounts.models import User
from locations.models import Agent, Location
from locations.selectors import with_agents
from locations.serializers import AgentSerializer, LocationSerializer
from projects.access import owned


def sections(user: User, *, now: datetime) -> Sections:
    return {
        "locations": serialized(owned(with_agents(Location.objects.all(), now=now), user), LocationSerializer),
        "agents": serialized(
            owned(Agent.objects.select_related("location"), user), AgentSerializer, location_id="location.public_id"
        ),
    }
