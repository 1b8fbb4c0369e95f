"""Destinations of alerts (AlertChannel), and messages to them (Delivery) with one or more events (DeliveryItem)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform
from django.db.models.lookups import IsNull

from alerts.events import Topic
from core import ids
from core.crypto import EncryptedField
from incidents.models import Incident
from monitors.models import Monitor, SelectsByTag
from notifications.models import Notification
from projects.models import Project

_OPEN = Q(state__in=["gathering", "waiting"])
_READY = ~Q(state__in=["sent", "dead", "failed"]) & Q(behind=[])
"""Not `_OPEN`, as the planner would then use the index of all open messages: by its statistics there is hardly any."""


def kind_choices() -> list[tuple[str, str]]:
    from alerts.transports import KINDS  # after all models are loaded

    return [(kind.name, kind.label) for kind in KINDS.values()]


class AlertChannel(SelectsByTag):
    """A channel of a user, or of a project: then `owner` is the project's owner.

    `config` holds the encrypted settings of the kind (`alerts.transports`). Only `hint` is shown again.
    Nothing is sent while `confirmed_at` is null. The owner of an e-mail address confirms it through a link, whose token
    has the digest `confirmation_digest` (`alerts.confirmation`). Other channels are confirmed at creation.
    """

    class Scope(models.TextChoices):
        ALL = "all"  # all of the owner; of a project's channel, all of the project
        PROJECT = "project"  # those of `scope_project`, if the owner is a member; none once it is deleted
        CHOSEN = "chosen"  # `monitors`, and those with one of the `monitor_tags` among the monitors of ALL

    class Outside(models.TextChoices):
        """What happens to notifications outside of the channel's hours."""

        HOLD = "hold"
        DROP = "drop"

    public_id = models.CharField(max_length=40, unique=True, default=ids.channel_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="alert_channels")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="alert_channels")
    created_at = models.DateTimeField()
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=20, choices=kind_choices)
    config = EncryptedField()
    hint = models.CharField(max_length=200, help_text="Distinguishes channels: a…@example.com, a host, a scheme.")
    enabled = models.BooleanField(default=True)
    topics = ArrayField(models.CharField(max_length=20, choices=Topic.choices))
    scope = models.CharField(max_length=7, choices=Scope.choices, default=Scope.ALL)
    scope_project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="+")
    monitors = models.ManyToManyField(Monitor, related_name="alert_channels")
    remind_every_hours = models.PositiveSmallIntegerField(default=24)
    delay_min = models.PositiveSmallIntegerField(default=0, db_default=0)
    hours: Any = models.JSONField(default=list, db_default=[], help_text="As in the API (`core.hours`); empty: always.")
    time_zone = models.CharField(max_length=64, default="UTC", db_default="UTC", help_text="Of the hours.")
    outside = models.CharField(max_length=4, choices=Outside.choices, default=Outside.HOLD, db_default=Outside.HOLD)
    templates: Any = models.JSONField(default=dict, db_default={}, help_text="Liquid: {down?, recovered?}.")

    confirmed_at = models.DateTimeField(null=True)
    confirmation_digest = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    confirmation_until = models.DateTimeField(null=True, editable=False)

    failures = models.IntegerField(default=0, help_text="Failed attempts since the last success.")
    last_sent_at = models.DateTimeField(null=True)
    last_tried_at = models.DateTimeField(null=True, help_text="When the last attempt ended.")
    prompt = models.BooleanField(
        default=False, db_default=False, help_text="Whether the last attempt was delivered without delay."
    )

    class Meta:
        indexes: ClassVar = [models.Index(fields=["owner", "last_tried_at"], name="channel_turns")]

    def __str__(self) -> str:
        return f"{self.kind} {self.hint}"

    @property
    def tagged_settings(self) -> Any:
        chosen = sorted(monitor.public_id for monitor in self.chosen)
        scope = [self.scope, self.scope_project_id, chosen, *sorted(self.monitor_tags)]
        timing = [self.delay_min, self.hours, self.time_zone, self.outside, self.templates]
        return [self.name, self.config, self.enabled, sorted(self.topics), self.remind_every_hours, scope, *timing]

    @property
    def chosen(self) -> list[Monitor]:
        """Return the chosen monitors, without those that have left the channel's project."""
        return [monitor for monitor in self.monitors.all() if self.project_id in (None, monitor.project_id)]


class Delivery(Notification):
    """One message to one channel. `public_id` is its key, the same at each attempt.

    A finished test of the channel is stored as `sent` or `failed`. `account` is the key of the channel's owner, for
    their turns; 0 if an older version wrote the message. `alerts.turns` explains `behind`.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.delivery_id, editable=False)
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="deliveries")
    account = models.BigIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField()
    behind = ArrayField(models.BigIntegerField(), default=list, db_default=[], editable=False)

    class Meta(Notification.Meta):
        verbose_name_plural = "deliveries"
        indexes: ClassVar = [
            *Notification.Meta.indexes,
            models.Index(fields=["account", "next_try_at"], name="delivery_turns", condition=_READY),
            models.Index(fields=["channel"], name="delivery_behind", condition=_OPEN & ~Q(behind=[])),
            models.Index(fields=["leased_until"], name="delivery_leased", condition=Q(leased_until__isnull=False)),
            models.Index(fields=["channel", "created_at"], name="delivery_log"),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} ({self.state})"


class DeliveryItem(models.Model):
    """One event in a message. `source` identifies the event; each channel gets it once.

    Without a `delivery` it is planned for `due_at`, and will then be sent unless that is no longer wanted. `user` is
    the person whom an escalation notifies.

    `payload` has all that the message needs, since its monitor may be deleted when it is sent.
    """

    delivery = models.ForeignKey(Delivery, null=True, on_delete=models.CASCADE, related_name="items")
    due_at = models.DateTimeField(null=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="+", db_index=False)
    source = models.CharField(max_length=40)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL, related_name="delivery_items")
    payload: Any = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["channel", "source"], name="one_item_per_channel_and_source")
        ]
        indexes: ClassVar = [
            models.Index(
                "channel",
                KeyTextTransform("monitor_id", "payload"),
                "id",
                name="item_series",
                condition=Q(incident__isnull=False),
            ),
            models.Index(fields=["due_at"], name="item_due", condition=Q(delivery=None)),
            models.Index(fields=["user"], name="item_person", condition=Q(user__isnull=False)),
            models.Index(
                KeyTextTransform("by", "payload"),
                name="item_actor",
                condition=Q(IsNull(KeyTextTransform("by", "payload"), False)),  # noqa: FBT003
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} to {self.channel_id}"
