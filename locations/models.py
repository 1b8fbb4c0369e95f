"""Locations that checks run from, their agents, and the tokens with which agents join."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models

from core import ids
from core.version import product_version
from projects.models import Project

DEFAULT = "default"
"""The id of the location of the workers, whose row a migration creates."""


class Location(models.Model):
    """A place that checks run from. `owner` and perhaps `project` are set for private ones. Shared ones have neither.

    Monitors refer to it by `public_id`, without a foreign key: deletion is refused while they do. Staff choose that of
    a shared one.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.location_id)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="locations")
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="locations")
    created_at = models.DateTimeField()
    name = models.CharField(max_length=100, help_text="Empty for the default location: LOCATION_NAME.")
    preselected = models.BooleanField(default=False, help_text="New monitors are checked from here.")
    offline_since = models.DateTimeField(
        null=True, editable=False, help_text="Private, with monitors: since when no agent is online; null if one is."
    )
    alert_due_at = models.DateTimeField(
        null=True, editable=False, help_text="When to notify that it is offline; null once that is done."
    )
    alerted_at = models.DateTimeField(null=True, editable=False, help_text="The last notification that it was offline.")

    def __str__(self) -> str:
        return self.title

    @property
    def title(self) -> str:
        """Return the name for people."""
        return settings.LOCATION_NAME if self.is_default else self.name

    @property
    def is_default(self) -> bool:
        return self.public_id == DEFAULT

    @property
    def is_private(self) -> bool:
        return self.owner_id is not None

    @property
    def tagged_settings(self) -> Any:
        return [self.name, self.preselected]

    # These read the agents of `locations.selectors.with_agents`.

    @property
    def is_online(self) -> bool:
        """Return whether checks are made from here. Workers are not agents: without any, nothing is checked at all."""
        return self.is_default or any(agent.is_online for agent in self.agents.all())

    @property
    def version(self) -> str | None:
        """Return the oldest version of the agents that are online."""
        if self.is_default:
            return product_version()
        versions = [agent.version for agent in self.agents.all() if agent.is_online]
        return min(versions, key=lambda text: [int(number) for number in re.findall("[0-9]+", text)], default=None)

    @property
    def last_seen_at(self) -> datetime | None:
        return max((agent.last_seen_at for agent in self.agents.all() if agent.last_seen_at), default=None)


class Agent(models.Model):
    """A process that checks for a location. Its credential is stored as a lookup key and a digest.

    The web processes note its signs of life: `last_seen_at`, and what it last said of itself. `protocol` is the version
    of the protocol that it speaks, also if that is refused.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.agent_id, editable=False)
    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="agents")
    lookup = models.CharField(max_length=20, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    created_at = models.DateTimeField()
    name = models.CharField(max_length=100, help_text="The name of its machine, as the agent said it.")
    version = models.CharField(max_length=40)
    protocol = models.IntegerField()
    last_seen_at = models.DateTimeField(null=True)
    network_down = models.BooleanField(default=False, help_text="It said that its own network is down.")
    checks = models.BigIntegerField(default=0, help_text="Results that it sent.")
    checks_per_min = models.IntegerField(default=0)
    lag_ms = models.IntegerField(null=True, help_text="From the lease of a check to its result, without its probe.")

    is_online: bool
    """Annotated by `locations.selectors.with_agents`."""

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"


class JoinToken(models.Model):
    """A token with which one agent may join a location, once. It is kept for a day after that, to say why it fails."""

    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="join_tokens")
    lookup = models.CharField(max_length=20, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"join token of {self.location_id}"
