"""Locations that callers and monitors may use, and which of them are online."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Prefetch, Q, QuerySet

from checks.agent_protocol import OFFLINE_SEC
from core.bulk import array
from core.db import get_or_not_found
from locations.models import Agent, Location
from projects import access
from projects.access import Caller

_SHARED = Q(owner=None)
# Django has no lock that many may have at the same time.
_LOCK = """
    SELECT public_id FROM locations_location WHERE public_id = ANY(%s::text[]) ORDER BY id FOR KEY SHARE
"""


def usable(*, project_id: int | None, owner_id: int) -> QuerySet[Location]:
    """Return the locations that a monitor of this project and owner may name."""
    private = Q(owner=owner_id, project=None)
    if project_id is not None:
        private |= Q(project=project_id)
    return Location.objects.filter(_SHARED | private)


def usable_by(caller: Caller) -> QuerySet[Location]:
    """Return the shared locations, and the private ones of the caller and of the caller's projects."""
    return Location.objects.filter(_SHARED) | access.accessible(caller, Location.objects.all())


def get_usable(caller: Caller, public_id: str) -> Location:
    return get_or_not_found(usable_by(caller).select_related("project"), public_id=public_id)


def public_id_of(key: int | None) -> str | None:
    """Return the public id of the location with this key, or None if it was deleted."""
    return Location.objects.filter(pk=key or 0).values_list("public_id", flat=True).first()


def titles_of(public_ids: Collection[str]) -> dict[str, str]:
    """Return the names of these locations by their public ids."""
    return {one.public_id: one.title for one in Location.objects.filter(public_id__in=public_ids)}


def lock_against_deletion(public_ids: Collection[str]) -> set[str]:
    """Return those of the locations that exist. They cannot be deleted until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [array(public_ids)])
        return {public_id for (public_id,) in cursor.fetchall()}


def with_agents(locations: QuerySet[Location], *, now: datetime) -> QuerySet[Location]:
    """Read the agents of these locations as well, with `is_online`."""
    agents = Agent.objects.annotate(is_online=_online(now))  # type: ignore[no-redef]  # declared for readers of the row
    return locations.select_related("project").prefetch_related(Prefetch("agents", agents))


def online_agents(now: datetime) -> Mapping[str, list[int]]:
    """Return the keys of the agents that are online, by the public id of their location.

    The default location has none and is always online.
    """
    found = defaultdict(list)
    rows = Agent.objects.filter(_online(now)).order_by("pk").values_list("location__public_id", "pk")
    for public_id, key in rows:
        found[public_id].append(key)
    return found


def _online(now: datetime) -> Q:
    return Q(network_down=False, last_seen_at__gt=now - timedelta(seconds=OFFLINE_SEC))
