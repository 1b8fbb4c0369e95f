"""Agents and locations for tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from checks.agent_protocol import PROTOCOL
from core.clock import utc_now
from core.credentials import issue
from locations.agents import AGENT_PREFIX
from locations.models import Agent, Location


def add_agent(location: Location, *, seen: datetime | None = None, **given: Any) -> Agent:
    """Create an agent without a join token. `seen` is its last sign of life."""
    _, columns = issue(AGENT_PREFIX)
    given = {"name": "probe-1", "version": "1.0", "protocol": PROTOCOL} | given
    agent: Agent = location.agents.create(**columns, **given, created_at=utc_now(), last_seen_at=seen)
    return agent


def shared(public_id: str = "fra", **given: Any) -> Location:
    return Location.objects.create(**{"public_id": public_id, "name": "Frankfurt", "created_at": utc_now()} | given)
