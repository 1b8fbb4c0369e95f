"""On-call schedules, escalation policies, how people are reached, and the links by which they acknowledge."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models

from core import ids
from incidents.models import Incident
from projects.models import Project


class OnCallSchedule(models.Model):
    """Who is on call when. Without `project` it belongs to its owner alone.

    `layers` and `overrides` are as in the API, with times in epoch milliseconds: `oncall.rotation` reads them. They
    name people by `public_id`, without foreign keys: the turn of one who has left goes to the next.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.schedule_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="on_call_schedules")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="on_call_schedules")
    created_at = models.DateTimeField()
    name = models.CharField(max_length=200)
    time_zone = models.CharField(max_length=64)
    layers: Any = models.JSONField()
    overrides: Any = models.JSONField(default=list)
    calendar_digest = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    announced_until = models.DateTimeField(
        null=True, editable=False, help_text="Gaps and hand-overs that begin before were announced."
    )

    def __str__(self) -> str:
        return self.name

    @property
    def tagged_settings(self) -> Any:
        return [self.name, self.time_zone, self.layers, self.overrides]


class EscalationPolicy(models.Model):
    """Whom an outage notifies, and when, until someone acknowledges it.

    `steps` are as in the API: `[{after_min, targets: [{type, id}]}]`, with public ids and without foreign keys. What no
    longer exists, or belongs to another project, is not notified.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.policy_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="escalation_policies")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="escalation_policies")
    created_at = models.DateTimeField()
    name = models.CharField(max_length=200)
    steps: Any = models.JSONField()
    repeat = models.PositiveSmallIntegerField(default=0)
    acknowledge_timeout_min = models.PositiveSmallIntegerField(default=0, help_text="0: never.")

    def __str__(self) -> str:
        return self.name

    @property
    def tagged_settings(self) -> Any:
        return [self.name, self.steps, self.repeat, self.acknowledge_timeout_min]


class Contact(models.Model):
    """How a person is reached. Without a row: their e-mail address at once."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")
    rules: Any = models.JSONField(help_text="As in the API: [{after_min, channel_id}].")

    def __str__(self) -> str:
        return f"contact of {self.user_id}"

    @property
    def tagged_settings(self) -> Any:
        return self.rules


class AcknowledgeLink(models.Model):
    """A link in a message to a person, with which they acknowledge an incident without signing in."""

    digest = models.BinaryField(max_length=32, primary_key=True, editable=False)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="acknowledge_link_expiry")]

    def __str__(self) -> str:
        return f"link of {self.user_id} to {self.incident_id}"
