"""Serializers of a manifest, derived from those of the API.

Files use names of projects and monitors instead of ids, and ISO 8601 times. Fields, ranges and messages are those of
the API.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any

from rest_framework import serializers

from alerts.serializers import MAX_CHOSEN, ChannelInputSerializer
from alerts.transports import secret_settings
from core.api.fields import BoolField, ListField, StrictSerializer, TextField
from incidents.serializers import WindowInputSerializer
from monitors.dependencies import MAX_PARENTS
from monitors.serializers import HeaderInputSerializer, MonitorInputSerializer
from monitors.types.http import MAX_HEADERS
from oncall.serializers import (
    EscalationPolicyInputSerializer,
    EscalationStepSerializer,
    OnCallLayerSerializer,
    OnCallScheduleInputSerializer,
)
from oncall.services import MAX_LAYERS, MAX_OVERRIDES, MAX_PEOPLE, MAX_STEPS, MAX_TARGETS
from statuspages.selectors import MAX_MONITORS
from statuspages.serializers import MAX_GROUPS, PageGroupInputSerializer, PageInputSerializer

MAX_ID = 64
Field = serializers.Field[Any, Any, Any, Any]

_REPLACED = ("name", "project_id", "scope_project_id", "monitor_ids", "escalation_policy_id")
PEOPLE_HELP = "By e-mail address: members of the project, or you; or by id."
ID_HELP = "Id of an existing object. Only needed to rename or move it, or if two have the same name."
PROJECT_HELP = "Name or id of a project of this file. Default: no project."
SECRET_HELP = "${PK_NAME} is replaced from the environment; ${keep:PK_NAME} keeps the stored value."  # noqa: S105
POLICY_HELP = "The name of an escalation policy of the project, or outside of projects, or {id}."
REFERENCE_HELP = "A monitor: its name in the same project, {project, name}, or {id}."


class TimeField(TextField):
    """An ISO 8601 time with its offset from UTC."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            moment = datetime.fromisoformat(super().to_internal_value(data))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None or not 1970 <= moment.year <= 9998:
            raise serializers.ValidationError(
                "must be a date and time with its offset from UTC, like 2026-12-06T02:00:00+01:00 "
                "or 2026-12-06T01:00:00Z."
            )
        return moment


class ReferenceField(serializers.Field[Any, Any, Any, Any]):
    """A reference to a monitor: a name, {project, name} or {id}."""

    def to_internal_value(self, data: Any) -> str | Mapping[str, str | None]:
        if isinstance(data, str) and data:
            return data
        if (
            isinstance(data, Mapping)
            and data.keys() in ({"id"}, {"project", "name"})
            and all(isinstance(value, str) or (key == "project" and value is None) for key, value in data.items())
        ):
            return data
        raise serializers.ValidationError("must be the name of a monitor, or {project, name}, or {id}.")


class NamedField(serializers.Field[Any, Any, Any, Any]):
    """A reference to an object of another section: its name, or {id}."""

    def to_internal_value(self, data: Any) -> str | Mapping[str, str]:
        if isinstance(data, str) and data:
            return data
        if isinstance(data, Mapping) and data.keys() == {"id"} and isinstance(data["id"], str):
            return data
        raise serializers.ValidationError("must be a name, or {id}.")


class TargetField(serializers.Field[Any, Any, Any, Any]):
    """A target of a step: {user: address}, {schedule: name or {id}} or {channel: name or {id}}."""

    def to_internal_value(self, data: Any) -> Mapping[str, Any]:
        if isinstance(data, Mapping) and len(data) == 1:
            ((kind, word),) = data.items()
            if kind == "user" and isinstance(word, str):
                return data
            if kind in ("schedule", "channel"):
                return {kind: NamedField().to_internal_value(word)}
        raise serializers.ValidationError("must be {user: address}, {schedule: name} or {channel: name}.")


class ScopeField(serializers.Field[Any, Any, Any, Any]):
    """The monitors of a channel or window: all, or a list; for channels also those of a project."""

    def __init__(self, *, of_project: bool, **kwargs: Any) -> None:
        self.of_project = of_project
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if data == "all":
            return "all"
        if isinstance(data, list):
            return ListField(child=ReferenceField(), max_length=MAX_CHOSEN).run_validation(data)
        named = self.of_project and isinstance(data, Mapping) and data.keys() == {"project"}
        if named and isinstance(data["project"], str | None):
            return data
        choices = "all, {project: …}," if self.of_project else "all,"
        raise serializers.ValidationError(f"must be {choices} or a list of monitors.")


class ManifestSerializer(StrictSerializer):
    def secret_fields(self) -> Collection[str]:
        """Return the fields that may contain placeholders."""
        return ()


class ProjectEntrySerializer(ManifestSerializer):
    id = TextField(required=False, max_length=MAX_ID, help_text=ID_HELP)
    name = TextField(max_length=200)
    escalation_policy = NamedField(
        required=False, allow_null=True, help_text=f"For its monitors without one. {POLICY_HELP} Default: unchanged."
    )


class EntrySerializer(ManifestSerializer):
    """The fields of the API with names instead of ids. Those that a subclass declares replace those of the API."""

    def get_fields(self) -> dict[str, Field]:
        fields = super().get_fields()
        help_text = fields["name"].help_text
        fields |= deepcopy(self._declared_fields)
        for name in self.secret_fields():
            fields[name].help_text = f"{fields[name].help_text} {SECRET_HELP}"
        return {
            "id": TextField(required=False, max_length=MAX_ID, help_text=ID_HELP),
            "name": TextField(max_length=200, help_text=help_text),
            "project": TextField(required=False, allow_null=True, max_length=200, help_text=PROJECT_HELP),
            **{name: field for name, field in fields.items() if name not in _REPLACED},
        }


class HeaderEntrySerializer(HeaderInputSerializer, ManifestSerializer):
    value = TextField(max_length=4096, allow_blank=True, help_text=SECRET_HELP)

    def secret_fields(self) -> Collection[str]:
        return ("value",)


class MonitorEntrySerializer(EntrySerializer, MonitorInputSerializer):
    enabled = BoolField(required=False, help_text="false: paused. Default: true.")
    request_headers = ListField(child=HeaderEntrySerializer(), required=False, max_length=MAX_HEADERS)
    escalation_policy = NamedField(
        required=False, allow_null=True, help_text=f"{POLICY_HELP} Default: that of the project, if it has one."
    )
    depends_on = ListField(
        child=ReferenceField(),
        required=False,
        max_length=MAX_PARENTS,
        help_text="Monitors of the same account, without cycles. While one is down, alerts of this one are held.",
    )


class ChannelEntrySerializer(EntrySerializer, ChannelInputSerializer):
    enabled = BoolField(required=False, help_text="false: send nothing. Default: true.")
    monitors: Any = ScopeField(
        of_project=True,
        required=False,
        help_text="Monitors to alert about: all, {project: …}, or a list of monitors. Default: all.",
    )

    def secret_fields(self) -> Collection[str]:
        return secret_settings()


class WindowEntrySerializer(EntrySerializer, WindowInputSerializer):
    starts_at: Any = TimeField(help_text="Of the first occurrence, with its offset from UTC.")
    ends_at: Any = TimeField(help_text="Of the first occurrence, with its offset from UTC.")
    monitors: Any = ScopeField(of_project=False, help_text="all, or a list of monitors.")


class LayerEntrySerializer(OnCallLayerSerializer):
    people = ListField(
        child=TextField(max_length=254), min_length=1, max_length=MAX_PEOPLE, help_text=f"{PEOPLE_HELP} In their turns."
    )
    starts_at: Any = TimeField(help_text="Of the first turn, with its offset from UTC.")

    def get_fields(self) -> dict[str, Field]:
        return {name: field for name, field in super().get_fields().items() if name != "user_ids"}


class OverrideEntrySerializer(StrictSerializer):
    person = TextField(max_length=254, help_text=PEOPLE_HELP)
    starts_at = TimeField(help_text="With its offset from UTC.")
    ends_at = TimeField(help_text="With its offset from UTC.")


class ScheduleEntrySerializer(EntrySerializer, OnCallScheduleInputSerializer):
    layers: Any = ListField(
        child=LayerEntrySerializer(),
        min_length=1,
        max_length=MAX_LAYERS,
        help_text="Later layers win where they have someone.",
    )
    overrides: Any = ListField(
        child=OverrideEntrySerializer(),
        required=False,
        max_length=MAX_OVERRIDES,
        help_text="They win over all layers; the last in the list wins among them.",
    )


class StepEntrySerializer(EscalationStepSerializer):
    targets: Any = ListField(child=TargetField(), max_length=MAX_TARGETS)


class PolicyEntrySerializer(EntrySerializer, EscalationPolicyInputSerializer):
    steps: Any = ListField(child=StepEntrySerializer(), min_length=1, max_length=MAX_STEPS)


class ShownMonitorSerializer(StrictSerializer):
    monitor = ReferenceField()
    name = TextField(max_length=200, help_text="Name on the page, shown instead of the monitor's own name.")


class GroupEntrySerializer(PageGroupInputSerializer):
    monitors = ListField(child=ShownMonitorSerializer(), max_length=MAX_MONITORS)


class PageEntrySerializer(EntrySerializer, PageInputSerializer):
    groups = ListField(
        child=GroupEntrySerializer(), required=False, max_length=MAX_GROUPS, help_text="In the order on the page."
    )

    def secret_fields(self) -> Collection[str]:
        return ("password",)


SECTIONS: dict[str, type[ManifestSerializer]] = {
    "projects": ProjectEntrySerializer,
    "monitors": MonitorEntrySerializer,
    "channels": ChannelEntrySerializer,
    "maintenance_windows": WindowEntrySerializer,
    "on_call_schedules": ScheduleEntrySerializer,
    "escalation_policies": PolicyEntrySerializer,
    "status_pages": PageEntrySerializer,
}
"""Sections in the order of a file, which is also the order of creation."""
