"""Channels and deliveries in the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from alerts.events import DEFAULT_TOPICS, EventType, Topic
from alerts.models import AlertChannel, Delivery
from alerts.selectors import shown_hint, shown_name
from alerts.templates import MAX_CHARS
from alerts.transports import KINDS, settings_by_name
from alerts.transports.base import ChannelKind, Setting
from core.api.fields import BoolField, ChoiceField, EpochMsField, IntField, ListField, StrictSerializer, TextField
from core.api.hours import HoursSerializer
from core.hours import MAX_HOURS
from core.registry import union
from monitors.selectors import shown_id
from monitors.types.tags import MAX_TAGS

MAX_CHOSEN = 1_000
SCOPE_HELP = (
    "all: of the caller, or of the channel's project; project: of scope_project_id; chosen: monitor_ids and "
    "monitor_tags."
)
TAGS_HELP = (
    "With chosen: also those monitors of the caller, or of the channel's project, that have any of these tags, "
    "compared without case, as long as they have it."
)

OUTSIDE_HELP = (
    "Outside of the hours: hold (the default) until they begin, if it is still true then; drop. Services with one "
    "alert per incident always get its recovery."
)


def _help(setting: Setting) -> str:
    text = setting.help
    if setting.choices:
        text += f" One of {', '.join(setting.choices)}."
    if setting.default and not setting.secret:
        text += f" Default: {setting.default()}."
    return text


class KindField(ChoiceField):
    """A choice of the registered kinds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=list(KINDS), **kwargs)


class TemplateSerializer(StrictSerializer):
    """Liquid templates of a message, with the fields of the webhook's payload as variables."""

    title = TextField(required=False, allow_blank=True, max_length=MAX_CHARS, help_text="In place of the subject.")
    body = TextField(required=False, allow_blank=True, max_length=MAX_CHARS, help_text="In place of the text.")


class TemplatesSerializer(StrictSerializer):
    """Templates of messages about one outage. Others, and those whose template fails, have Pulsekeeper's own texts."""

    down = TemplateSerializer(required=False, help_text="That a monitor is down, or still is.")
    recovered = TemplateSerializer(required=False, help_text="That it is up again.")


class ChannelInputSerializer(StrictSerializer):
    """An alert channel to create, with the settings of its kind: each description names its kinds."""

    kind = KindField()
    name = TextField(
        max_length=200,
        required=False,
        help_text="Default: the hint, with the name of the service for Slack and the like.",
    )
    topics = ListField(
        child=ChoiceField(choices=Topic.values),
        required=False,
        max_length=20,
        help_text=f"What to send. Default: {', '.join(DEFAULT_TOPICS)}.",
    )
    monitors = ChoiceField(choices=AlertChannel.Scope.values, required=False, help_text=SCOPE_HELP)
    scope_project_id = TextField(required=False, allow_null=True, max_length=64)
    monitor_ids = ListField(child=TextField(max_length=64), required=False, max_length=MAX_CHOSEN)
    monitor_tags = ListField(child=TextField(), required=False, max_length=MAX_TAGS, help_text=TAGS_HELP)
    remind_every_hours = IntField(required=False, min_value=1, max_value=168, help_text="Default: 24.")
    delay_min = IntField(
        required=False,
        min_value=0,
        max_value=1_440,
        help_text="Minutes after which an outage is notified, if it is still open and not acknowledged. Its recovery "
        "is notified only if it was. Default: 0.",
    )
    hours = ListField(
        child=HoursSerializer(),
        required=False,
        max_length=MAX_HOURS,
        help_text="When the channel is used. Empty, the default: always.",
    )
    timezone = TextField(required=False, max_length=64, help_text="An IANA name, of the hours. Default: UTC.")
    outside = ChoiceField(choices=AlertChannel.Outside.values, required=False, help_text=OUTSIDE_HELP)
    templates = TemplatesSerializer(required=False, help_text="Replaced as a whole. Default: none.")
    project_id = TextField(required=False, allow_null=True, max_length=64, help_text="null: a personal channel.")

    def get_fields(self) -> dict[str, Any]:
        """Add the settings of all kinds after the name."""
        fields = super().get_fields()
        first = {name: fields.pop(name) for name in ("kind", "name")}
        settings = {name: self._setting(found) for name, found in settings_by_name().items()}
        return union(first=first, settings=settings, channel=fields)

    def _setting(self, found: Sequence[tuple[ChannelKind, Setting]]) -> TextField:
        return TextField(
            max_length=max(setting.max_length for _, setting in found),
            required=False,
            write_only=True,
            help_text=" ".join(f"{kind.name}: {_help(setting)}" for kind, setting in found),
        )


class ChannelSerializer(serializers.Serializer[Any]):
    """A destination of alerts. Addresses and secrets are stored encrypted and never returned."""

    id = serializers.CharField(source="public_id")
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    name = serializers.SerializerMethodField()
    kind = KindField()
    hint = serializers.SerializerMethodField(
        help_text="Identifies the channel: a…@example.com, a host, a service. null for viewers."
    )
    enabled = serializers.BooleanField()
    topics = serializers.ListField(child=serializers.ChoiceField(choices=Topic.values))
    monitors = serializers.ChoiceField(source="scope", choices=AlertChannel.Scope.values, help_text=SCOPE_HELP)
    scope_project_id = serializers.CharField(source="scope_project.public_id", allow_null=True)
    monitor_ids = serializers.SerializerMethodField()
    monitor_tags = serializers.ListField(child=serializers.CharField())
    remind_every_hours = serializers.IntegerField()
    delay_min = serializers.IntegerField()
    hours = HoursSerializer(many=True)
    timezone = serializers.CharField(source="time_zone")
    outside = serializers.ChoiceField(choices=AlertChannel.Outside.values, help_text=OUTSIDE_HELP)
    templates = serializers.SerializerMethodField(help_text="null for viewers.")
    created_at = EpochMsField()
    confirmed_at = EpochMsField(allow_null=True, help_text="null: not confirmed, so nothing is sent.")
    failures = serializers.IntegerField(help_text="Consecutive failed attempts.")
    last_sent_at = EpochMsField(allow_null=True)
    secret = serializers.SerializerMethodField(help_text="Webhooks only: returned once, on creation; null afterwards.")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_monitor_ids(self, channel: AlertChannel) -> list[str]:
        return [shown_id(monitor, self.context.get("caller")) for monitor in channel.chosen]

    @extend_schema_field(TemplatesSerializer(allow_null=True))
    def get_templates(self, channel: AlertChannel) -> dict[str, dict[str, str]] | None:
        return None if shown_hint(channel, self.context.get("caller")) is None else channel.templates

    def get_name(self, channel: AlertChannel) -> str:
        return shown_name(channel, self.context.get("caller"))

    def get_hint(self, channel: AlertChannel) -> str | None:
        return shown_hint(channel, self.context.get("caller"))

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_secret(self, channel: AlertChannel) -> str | None:
        secret: str | None = self.context.get("secret")
        return secret


class ChannelPatchSerializer(ChannelInputSerializer):
    """The fields to change. Read-only fields of a channel are ignored."""

    ignored = frozenset(ChannelSerializer().fields) - frozenset(ChannelInputSerializer().fields) - {"enabled"}
    kind = KindField(required=False, help_text="Cannot be changed.")
    project_id = TextField(required=False, allow_null=True, max_length=64, help_text="Cannot be changed.")
    enabled = BoolField(required=False, help_text="false: nothing is sent.")

    def _setting(self, found: Sequence[tuple[ChannelKind, Setting]]) -> TextField:
        """Return a field that accepts null for optional settings, which keeps the stored value."""
        field = super()._setting(found)
        field.allow_null = not any(setting.required for _, setting in found)
        return field


class ChannelTestSerializer(serializers.Serializer[Any]):
    """The result of a test."""

    delivered = serializers.BooleanField()
    detail = serializers.CharField(help_text="The receiver's response, or why it could not be reached.")


class DeliveryItemSerializer(serializers.Serializer[Any]):
    """One event in a message."""

    news = serializers.ChoiceField(source="payload.event_type", choices=[n.value for n in EventType])
    incident_id = serializers.CharField(source="payload.incident_id", allow_null=True)
    monitor_id = serializers.SerializerMethodField()
    location_id = serializers.SerializerMethodField()  # items of earlier versions have none
    at = serializers.SerializerMethodField()

    def get_monitor_id(self, item: Any) -> str | None:
        monitor_id: str | None = item.payload["monitor_id"]
        return None if monitor_id is None else self.context.get("hidden_ids", {}).get(monitor_id, monitor_id)

    def get_location_id(self, item: Any) -> str | None:
        location_id: str | None = item.payload.get("location_id")
        return location_id

    @extend_schema_field({"type": "integer", "format": "int64"})
    def get_at(self, item: Any) -> int:
        at: int = item.payload["at"]
        return at


class DeliverySerializer(serializers.Serializer[Any]):
    """One message to one channel."""

    id = serializers.CharField(source="public_id", help_text="Sent as the header Pulsekeeper-Delivery.")
    state = serializers.ChoiceField(
        choices=Delivery.State.values,
        help_text="failed: a test that was not delivered. Tests are not retried and cannot be replayed.",
    )
    created_at = EpochMsField()
    next_try_at = EpochMsField()
    attempts = serializers.IntegerField()
    last_error = serializers.SerializerMethodField(help_text="null without one, and for viewers.")
    done_at = EpochMsField(allow_null=True, help_text="When it was sent or given up.")
    items = DeliveryItemSerializer(many=True, source="items.all")

    def get_last_error(self, delivery: Delivery) -> str | None:
        """Return the last error, without which viewers cannot learn the destination from it."""
        return None if self.context.get("is_viewer") else delivery.last_error
