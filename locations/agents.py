"""Who an agent is, what it says of itself, and which versions of its protocol are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from checks.agent_protocol import PROTOCOL
from core import credentials
from core.bulk import array
from core.errors import AgentOutdated
from locations.models import Agent

AGENT_PREFIX = "agk_"
_ACCEPTED = range(max(1, PROTOCOL - 1), PROTOCOL + 1)


def authenticate(credential: str) -> Agent | None:
    """Return the agent with its location, or None if it was revoked, or the account of its location is locked."""
    agents = Agent.objects.exclude(location__owner__is_active=False).select_related("location")
    return credentials.find(agents, credential, prefix=AGENT_PREFIX)


@dataclass(slots=True)
class Sign:
    """What an agent said of itself since the last note. `at` is None if it was refused. None: not said."""

    agent_id: int
    at: datetime | None = None
    version: str | None = None
    protocol: int | None = None
    network_down: bool | None = None
    checks: int = 0
    checks_per_min: int = 0
    lag_ms: int | None = None


_NOTE = """
    UPDATE locations_agent AS agent
       SET last_seen_at = greatest(agent.last_seen_at, new.at),
           version = coalesce(new.version, agent.version),
           protocol = coalesce(new.protocol, agent.protocol),
           network_down = coalesce(new.network_down, agent.network_down),
           checks = agent.checks + new.checks,
           checks_per_min = new.checks_per_min,
           lag_ms = coalesce(new.lag_ms, agent.lag_ms)
      FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[], %s::int[], %s::bool[], %s::bigint[], %s::int[],
                  %s::int[])
           AS new (id, at, version, protocol, network_down, checks, checks_per_min, lag_ms)
     WHERE agent.id = new.id
    RETURNING agent.id, (SELECT coalesce(owner.is_active, true)
                           FROM locations_location AS location
                           LEFT JOIN accounts_user AS owner ON owner.id = location.owner_id
                          WHERE location.id = agent.location_id)
"""
_IS_KNOWN = "SELECT EXISTS (SELECT FROM locations_agent WHERE id = %s)"


def note_signs(signs: Sequence[Sign]) -> set[int]:
    """Store what agents said of themselves. Return the keys of those that `authenticate` would still find."""
    ordered = sorted(signs, key=lambda sign: sign.agent_id)
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, [array(getattr(sign, name) for sign in ordered) for name in Sign.__slots__])
        return {key for key, is_active in cursor.fetchall() if is_active}


def is_known(agent_id: int) -> bool:
    """Return whether the agent was not revoked."""
    # Not by the ORM, which takes longer to compile it than PostgreSQL to answer: nearly all requests run it.
    with connection.cursor() as cursor:
        cursor.execute(_IS_KNOWN, [agent_id])
        (found,) = cursor.fetchone()
        return bool(found)


def is_accepted(protocol: int) -> bool:
    """Return whether this server speaks the version."""
    return protocol in _ACCEPTED


def require_accepted(protocol: int) -> None:
    """Raise AgentOutdated unless this server speaks the version."""
    if not is_accepted(protocol):
        versions = " and ".join(map(str, _ACCEPTED))
        raise AgentOutdated(f"protocol: is {protocol}; this server accepts {versions}.")
