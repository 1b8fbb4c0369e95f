"""Remove a person from the timelines of other people's incidents when their account is deleted."""

from __future__ import annotations

from accounts.models import User
from accounts.services import GONE, addresses_of
from incidents.models import IncidentEvent

_NAMED_IN_TEXT = (IncidentEvent.Type.ACKNOWLEDGED, IncidentEvent.Type.RESOLVED)


def forget_person(user: User) -> None:
    """Remove the names from acknowledgements and resolutions. Comments stay, as part of the timeline."""
    addresses = addresses_of(user)
    events = list(IncidentEvent.objects.filter(data__by__in=addresses).exclude(incident__owner=user))
    for event in events:
        if event.type in _NAMED_IN_TEXT:
            event.text = event.text.replace(event.data["by"], GONE)
        event.data["by"] = GONE
    IncidentEvent.objects.bulk_update(events, ["text", "data"], batch_size=500)
