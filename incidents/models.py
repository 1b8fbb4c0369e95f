"""Incidents, their timelines, and maintenance windows."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.lookups import IsNull

from core import ids
from monitors.models import REASON_CHOICES, Monitor, SelectsByTag
from projects.models import Project


class Incident(models.Model):
    """An outage of a monitor; or, without a monitor, an incident that people declared and comment on.

    `owner` and `project` are the monitor's, and stay after it is deleted, as do its id and name. The row records its
    own notifications: an incident whose notification was suppressed (by a mute, a window, flapping) stays *due* until
    its last notification matches its current state.
    """

    class Resolution(models.TextChoices):
        RECOVERED = "recovered"
        PAUSED = "paused"
        DELETED = "deleted"
        CLOSED = "closed"  # by a person; only without a monitor

    class Quiet(models.TextChoices):
        MUTED = "muted"
        MAINTENANCE = "maintenance"
        FLAPPING = "flapping"
        HELD = "held"  # a monitor that this one depends on is down, or may be

    public_id = models.CharField(max_length=40, unique=True, default=ids.incident_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="incidents")
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="incidents")
    monitor = models.ForeignKey(Monitor, null=True, on_delete=models.SET_NULL, related_name="incidents")
    monitor_public_id = models.CharField(max_length=40, default="", help_text="Kept when the monitor is deleted.")
    name = models.CharField(max_length=200, help_text="The monitor's name at that time, or the title.")

    reason_code = models.CharField(max_length=20, null=True, choices=REASON_CHOICES)
    detail = models.TextField(null=True)
    claim = models.BigIntegerField(null=True, help_text="The check that confirmed it.")
    evidence = models.JSONField(null=True, help_text="What that check saw. Kept longer than its result.")

    started_at = models.DateTimeField(help_text="The first of the consecutive failures.")
    confirmed_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=9, null=True, choices=Resolution.choices)

    caused_by = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.SET_NULL,
        related_name="effects",
        db_constraint=False,
        db_index=False,  # a partial one below
        help_text="The outage of a monitor that this one depends on, which held its alerts.",
    )
    announced_at = models.DateTimeField(null=True, help_text="When the outage was announced.")
    acknowledgement_announced_at = models.DateTimeField(null=True)
    closing_announced_at = models.DateTimeField(null=True, help_text="When the recovery was announced.")
    quiet = models.CharField(
        max_length=11, null=True, choices=Quiet.choices, help_text="Why the last notification was suppressed."
    )
    look_again_at = models.DateTimeField(null=True, help_text="When to check again whether to notify.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["monitor"], condition=Q(resolved_at=None), name="one_open_incident_per_monitor"
            ),
            models.CheckConstraint(
                condition=Q(resolved_at=None, resolution=None) | Q(resolved_at__isnull=False, resolution__isnull=False),
                name="incident_resolved_somehow",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["monitor", "started_at"], name="incidents_of_monitor"),
            models.Index(fields=["id"], name="incident_open", condition=Q(resolved_at=None)),
            models.Index(fields=["caused_by"], name="incident_effects", condition=Q(caused_by__isnull=False)),
            models.Index(
                fields=["acknowledged_by"], name="incident_acknowledger", condition=Q(acknowledged_by__isnull=False)
            ),
            models.Index(
                fields=["id"],
                name="incident_closing_due",
                condition=Q(resolved_at__isnull=False, announced_at__isnull=False, closing_announced_at=None),
            ),
            models.Index(
                fields=["id"],
                name="incident_passed",
                condition=Q(resolved_at__isnull=False, announced_at=None, quiet=None, monitor__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"

    @property
    def is_open(self) -> bool:
        return self.resolved_at is None

    @property
    def running_escalation(self) -> Escalation | None:
        """The escalation whose next step is still to run, or None."""
        found: Escalation | None = getattr(self, "escalation", None)
        if found is None or found.state != Escalation.State.RUNNING or not self.is_open:
            return None
        return found if found.next_at is not None and found.policy_id is not None else None

    @property
    def project_key(self) -> int | None:
        """The key of its project: that of its monitor as long as that exists. `owner` may be a former one."""
        return self.project_id if self.monitor is None else self.monitor.project_id


class Escalation(models.Model):
    """How far an incident has come in an escalation policy (`oncall.escalation`).

    `step` is the one that runs next. While it is acknowledged, `next_at` is when it begins again; null: never. A row
    without `next_at` otherwise is finished. `run` counts its beginnings, so that each notification has a source.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        ACKNOWLEDGED = "acknowledged"
        FINISHED = "finished"

    incident = models.OneToOneField(Incident, on_delete=models.CASCADE, primary_key=True, related_name="escalation")
    policy = models.ForeignKey("oncall.EscalationPolicy", null=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(max_length=12, choices=State.choices, default=State.RUNNING)
    run = models.IntegerField(default=0)
    round = models.SmallIntegerField(default=0)
    step = models.SmallIntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    reached = models.BooleanField(default=False, help_text="Whether anybody was notified in this run.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["next_at"], name="escalation_due", condition=Q(next_at__isnull=False))
        ]

    def __str__(self) -> str:
        return f"step {self.step} of round {self.round} for {self.incident_id}"


class IncidentEvent(models.Model):
    """An entry of an incident's timeline, ordered by id. `text` is a sentence for people."""

    class Type(models.TextChoices):
        FIRST_FAILURE = "first_failure"
        CONFIRMED = "confirmed"
        REASON_CHANGED = "reason_changed"
        ANNOUNCED = "announced"  # alerts are queued: data.kind
        ALERT_SENT = "alert_sent"
        ALERT_FAILED = "alert_failed"
        SUPPRESSED = "suppressed"  # data.reason
        ACKNOWLEDGED = "acknowledged"
        COMMENTED = "commented"
        DECLARED = "declared"
        RESOLVED = "resolved"
        TOO_OFTEN = "too_often"
        ESCALATED = "escalated"  # a step of a policy: data.step, data.round
        UNACKNOWLEDGED = "unacknowledged"

    public_id = models.CharField(max_length=40, unique=True, default=ids.incident_event_id, editable=False)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    type = models.CharField(max_length=14, choices=Type.choices)
    at = models.DateTimeField()
    text = models.TextField()
    data = models.JSONField(default=dict)

    class Meta:
        # Few entries name a person. Deleting an account reads no others.
        indexes: ClassVar = [
            models.Index(
                KeyTextTransform("by", "data"),
                name="event_person",
                condition=Q(IsNull(KeyTextTransform("by", "data"), False)),  # noqa: FBT003
            ),
            GinIndex(KeyTransform("people", "data"), name="event_people", condition=Q(data__has_key="people")),
        ]

    def __str__(self) -> str:
        return f"{self.type}: {self.text}"


class FlappingSpell(models.Model):
    """A period in which a monitor goes down and recovers too often to notify about every change."""

    monitor = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="flapping_spells")
    started_at = models.DateTimeField()
    last_change_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["monitor"], condition=Q(ended_at=None), name="one_flapping_spell_per_monitor"
            )
        ]

    def __str__(self) -> str:
        return f"{self.monitor_id} since {self.started_at}"


class MaintenanceWindow(SelectsByTag):
    """When alerts are suppressed: once, or repeatedly by `rrule` in `time_zone`.

    `starts_at` to `ends_at` is the first occurrence. `current_starts_at` to `current_ends_at` is the active or next
    one; both are null if there are no more. `previous_ends_at` is the end of the one before it, for processes whose
    time is older. Without `project` the window belongs to its owner alone.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.window_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="maintenance_windows")
    created_at = models.DateTimeField()
    name = models.CharField(max_length=200)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    time_zone = models.CharField(max_length=64, default="UTC")
    rrule = models.CharField(max_length=500, default="", help_text="RFC 5545, without DTSTART; empty: once.")
    all_monitors = models.BooleanField(help_text="All monitors of the project or owner, otherwise the chosen ones.")
    monitors = models.ManyToManyField(Monitor, related_name="maintenance_windows")
    current_starts_at = models.DateTimeField(null=True)
    current_ends_at = models.DateTimeField(null=True)
    previous_ends_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["current_ends_at"], name="window_current", condition=Q(current_ends_at__isnull=False))
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def tagged_settings(self) -> Any:
        times = [self.starts_at.isoformat(), self.ends_at.isoformat(), self.time_zone, self.rrule]
        chosen = sorted(monitor.public_id for monitor in self.chosen)
        return [self.name, times, self.scope, chosen, *sorted(self.monitor_tags)]

    @property
    def scope(self) -> str:
        return "all" if self.all_monitors else "chosen"

    @property
    def chosen(self) -> list[Monitor]:
        """The chosen monitors among those that were loaded, without monitors that left the project."""
        return [monitor for monitor in self.monitors.all() if self.project_id in (None, monitor.project_id)]
