"""Who an agent is, and which versions of its protocol are accepted."""

from __future__ import annotations

from checks.agent_protocol import PROTOCOL
from core import credentials
from core.errors import AgentOutdated
from locations.models import Agent

AGENT_PREFIX = "agk_"
_ACCEPTED = range(max(1, PROTOCOL - 1), PROTOCOL + 1)


def authenticate(credential: str) -> Agent | None:
    """Return the agent with its location, or None if it was revoked, or the account of its location is locked."""
    agents = Agent.objects.exclude(location__owner__is_active=False).select_related("location")
    return credentials.find(agents, credential, prefix=AGENT_PREFIX)


def require_accepted(protocol: int) -> None:
    """Raise AgentOutdated unless this server speaks the version."""
    if protocol not in _ACCEPTED:
        versions = " and ".join(map(str, _ACCEPTED))
        raise AgentOutdated(f"protocol: is {protocol}; this server accepts {versions}.")
