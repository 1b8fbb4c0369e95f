"""Serializers of status pages, notes, subscribers and badges."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.api.fields import BoolField, ChoiceField, EpochMsField, ListField, StrictSerializer, TextField
from monitors.selectors import shown_id
from monitors.types.tags import MAX_TAGS
from statuspages import badges
from statuspages.logos import MAX_BYTES
from statuspages.models import Badge, NoteUpdate, PageMonitor, StatusPage
from statuspages.selectors import MAX_MONITORS
from statuspages.services import MAX_SLUG

MAX_TEXT = 5_000
MAX_GROUPS = 100
MAX_ENCODED = (MAX_BYTES + 2) // 3 * 4


class PageMonitorInputSerializer(StrictSerializer):
    """A monitor to show."""

    monitor_id = TextField(max_length=64)
    name = TextField(max_length=200, help_text="Name on the page. The monitor's own name stays private.")


class PageGroupInputSerializer(StrictSerializer):
    """Monitors under a heading."""

    name = TextField(max_length=200, required=False, allow_blank=True, help_text="Default: no heading.")
    monitors = ListField(child=PageMonitorInputSerializer(), max_length=MAX_MONITORS)
    monitor_tags = ListField(
        child=TextField(),
        required=False,
        max_length=MAX_TAGS,
        help_text="Also shows those monitors of the account, or of the page's project, that have any of these tags, as "
        "long as they have it, under their own names. At most 1,000 monitors of a page are shown.",
    )


class PageInputSerializer(StrictSerializer):
    """A status page to create."""

    project_id = TextField(
        required=False, allow_null=True, max_length=64, help_text="null: a personal page. Cannot be changed later."
    )
    name = TextField(max_length=200)
    slug = TextField(max_length=MAX_SLUG, help_text="The page is at /status/<slug>: a-z, 0-9 and -.")
    description = TextField(required=False, allow_blank=True, max_length=MAX_TEXT)
    published = BoolField(required=False, help_text="false: the page is hidden. Default: true.")
    theme = ChoiceField(
        required=False, choices=StatusPage.Theme.values, help_text="auto: the reader's preference. Default: auto."
    )
    accent = TextField(
        required=False,
        allow_null=True,
        max_length=7,
        help_text="#rrggbb with a contrast of at least 3 to 1 on both themes; null: Pulsekeeper's own.",
    )
    password = TextField(
        required=False,
        allow_null=True,
        write_only=True,
        min_length=8,
        max_length=200,
        help_text="Required to read the page; null: everyone can read it.",
    )
    custom_domain = TextField(
        required=False,
        allow_null=True,
        max_length=253,
        help_text="Own domain of the page; it must point here. It is served once `domain_record` was found.",
    )
    show_window_names = BoolField(
        required=False, help_text="Whether maintenance windows are shown by their names. Default: false."
    )
    show_locations = BoolField(
        required=False, help_text="Whether the locations of monitors with several are shown. Default: false."
    )
    groups = ListField(
        child=PageGroupInputSerializer(), required=False, max_length=MAX_GROUPS, help_text="In display order."
    )


class PageMonitorSerializer(serializers.Serializer[Any]):
    """A monitor on a page."""

    monitor_id = serializers.SerializerMethodField()
    name = serializers.CharField()

    def get_monitor_id(self, item: PageMonitor) -> str:
        return shown_id(item.monitor, self.context.get("caller"))


class PageGroupSerializer(serializers.Serializer[Any]):
    """Monitors under a heading."""

    name = serializers.CharField()
    monitors = PageMonitorSerializer(source="monitors.all", many=True)
    monitor_tags = serializers.ListField(child=serializers.CharField())


class DomainRecordSerializer(serializers.Serializer[Any]):
    """A TXT record to create in the zone of a domain."""

    name = serializers.CharField()
    value = serializers.CharField()


class StatusPageSerializer(serializers.Serializer[Any]):
    """A public page with the status of monitors. Its password is never returned."""

    id = serializers.CharField(source="public_id")
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    name = serializers.CharField()
    slug = serializers.CharField()
    url = serializers.URLField(read_only=True, help_text="Public URL of the page.")
    description = serializers.CharField()
    published = serializers.BooleanField()
    theme = serializers.ChoiceField(choices=StatusPage.Theme.values)
    accent = serializers.CharField(allow_null=True)
    protected = serializers.BooleanField(
        source="is_protected", read_only=True, help_text="Whether the page requires a password."
    )
    custom_domain = serializers.CharField(allow_null=True)
    domain_verified = serializers.SerializerMethodField(help_text="Whether the page is served on its own domain.")
    domain_record = DomainRecordSerializer(
        read_only=True, allow_null=True, help_text="TXT record that proves the domain; null without a domain."
    )
    show_window_names = serializers.BooleanField()
    show_locations = serializers.BooleanField()
    has_logo = serializers.BooleanField(read_only=True)
    groups = PageGroupSerializer(source="groups.all", many=True)
    created_at = EpochMsField()

    def get_domain_verified(self, page: StatusPage) -> bool:
        return page.served_domain is not None


class PagePatchSerializer(PageInputSerializer):
    """The fields to change. Read-only fields of a page are ignored."""

    ignored = frozenset(StatusPageSerializer().fields) - frozenset(PageInputSerializer().fields)

    name = TextField(required=False, max_length=200)
    slug = TextField(required=False, max_length=MAX_SLUG)
    project_id = TextField(required=False, allow_null=True, max_length=64, help_text="Cannot be changed.")


class Base64Field(TextField):
    """Bytes in a body."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            return b64decode(super().to_internal_value(data), validate=True)
        except ValueError:
            raise serializers.ValidationError("is not Base64.") from None


class LogoInputSerializer(StrictSerializer):
    image = Base64Field(
        max_length=MAX_ENCODED,
        help_text="A PNG, JPEG, WebP or GIF in Base64, of at most 1 MiB, 4,096 pixels a side and 4 megapixels.",
    )


class NoteUpdateInputSerializer(StrictSerializer):
    """An update to add to a note."""

    status = ChoiceField(choices=NoteUpdate.Status.values, help_text="resolved ends the note.")
    text = TextField(max_length=MAX_TEXT)


class NoteInputSerializer(NoteUpdateInputSerializer):
    """A note to write, with its first update."""

    title = TextField(max_length=200)
    incident_id = TextField(
        required=False, allow_null=True, max_length=64, help_text="An incident of a monitor that the page shows."
    )


class NoteUpdateSerializer(serializers.Serializer[Any]):
    """One update of a note."""

    id = serializers.CharField(source="public_id")
    status = serializers.ChoiceField(choices=NoteUpdate.Status.values)
    text = serializers.CharField()
    at = EpochMsField()


class NoteSerializer(serializers.Serializer[Any]):
    """A note about an incident on a status page."""

    id = serializers.CharField(source="public_id")
    title = serializers.CharField()
    incident_id = serializers.CharField(source="incident.public_id", allow_null=True, read_only=True)
    created_at = EpochMsField()
    resolved_at = EpochMsField(allow_null=True)
    updates = NoteUpdateSerializer(source="updates.all", many=True)


class SubscriberSerializer(serializers.Serializer[Any]):
    """An e-mail address that subscribed to a page's updates."""

    id = serializers.CharField(source="public_id")
    hint = serializers.CharField(help_text="a…@example.com: addresses are not shown.")
    confirmed_at = EpochMsField()


class BadgeSerializer(serializers.Serializer[Any]):
    """The URLs of a monitor's badges."""

    key = serializers.CharField(help_text="Anyone with it can see the badges. To replace it, use DELETE and PUT.")
    urls = serializers.SerializerMethodField()

    @extend_schema_field(
        {
            "type": "object",
            "properties": {name: {"type": "string", "format": "uri"} for name in badges.NAMES},
            "required": list(badges.NAMES),
        }
    )
    def get_urls(self, badge: Badge) -> dict[str, str]:
        return {name: f"{settings.BASE_URL}/badge/{badge.key}/{name}.svg" for name in badges.NAMES}
