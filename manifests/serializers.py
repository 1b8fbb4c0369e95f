"""What a file may say: the bodies of the API, in the words of a file.

A file names projects and monitors by their names where the API names ids, times as people write them, and the whole
of each thing. Everything else is the API's own: its fields, its ranges, its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers

from alerts.serializers import MAX_CHOSEN, ChannelInputSerializer
from alerts.transports import secret_settings
from core.api.fields import BoolField, StrictSerializer, TextField
from incidents.serializers import WindowInputSerializer
from manifests.entries import Reference
from monitors.configuration import MAX_HEADERS
from monitors.serializers import HeaderInputSerializer, MonitorInputSerializer
from statuspages.serializers import MAX_GROUPS, PageInputSerializer
from statuspages.services import MAX_MONITORS

MAX_ID = 64
Fields = dict[str, serializers.Field[Any, Any, Any, Any]]

_IDS = ("project_id", "scope_project_id", "monitor_ids")
ID_HELP = "Which one of the account it is. Only needed to rename or move it, or where two have the same name."
PROJECT_HELP = "The name, or the id, of a project of this file. Default: in no project."
SECRET_HELP = (
    "${PK_NAME} is filled from the environment; ${keep:PK_NAME} is what is stored, unless that is set."  # noqa: S105
)
REFERENCE_HELP = "A monitor: its name, in the same project; or {project, name}; or {id}."


class TimeField(TextField):
    """A moment as people and other tools write it, with its offset from UTC."""

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
    """A name, {project, name} or {id}."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", REFERENCE_HELP)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Reference:
        if isinstance(data, str) and data:
            return Reference(name=data)
        if isinstance(data, Mapping) and all(
            isinstance(value, str) or (key == "project" and value is None) for key, value in data.items()
        ):
            if data.keys() == {"id"}:
                return Reference(id=data["id"])
            if data.keys() == {"project", "name"}:
                return Reference(name=data["name"], project=data["project"], elsewhere=True)
        raise serializers.ValidationError("must be the name of a monitor, or {project, name}, or {id}.")


class ScopeField(serializers.Field[Any, Any, Any, Any]):
    """Which monitors: all, or a list of them; of a channel also those of a project."""

    def __init__(self, *, of_project: bool, **kwargs: Any) -> None:
        self.of_project = of_project
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if data == "all":
            return "all"
        if isinstance(data, list):
            chosen = serializers.ListField(child=ReferenceField(), max_length=MAX_CHOSEN)
            return chosen.run_validation(data)
        named = self.of_project and isinstance(data, Mapping) and data.keys() == {"project"}
        if named and isinstance(data["project"], str | None):
            return {"project": data["project"]}
        raise serializers.ValidationError(
            "must be all, {project: …}, or a list of monitors."
            if self.of_project
            else "must be all, or a list of monitors."
        )


class ProjectEntrySerializer(StrictSerializer):
    id = TextField(required=False, max_length=MAX_ID, help_text=ID_HELP)
    name = TextField(max_length=200)


class HeaderEntrySerializer(HeaderInputSerializer):
    value = TextField(max_length=4096, allow_blank=True, help_text=SECRET_HELP)


class MonitorEntrySerializer(MonitorInputSerializer):
    def get_fields(self) -> Fields:
        return _entry(
            super().get_fields(),
            enabled=BoolField(required=False, help_text="false: paused. Default: true."),
            request_headers=serializers.ListField(
                child=HeaderEntrySerializer(), required=False, max_length=MAX_HEADERS
            ),
        )


class ChannelEntrySerializer(ChannelInputSerializer):
    def get_fields(self) -> Fields:
        fields = super().get_fields()
        for name in secret_settings():
            fields[name].help_text = f"{fields[name].help_text} {SECRET_HELP}"
        return _entry(
            fields,
            enabled=BoolField(required=False, help_text="false: nothing is sent. Default: true."),
            monitors=ScopeField(
                of_project=True,
                required=False,
                help_text="Which it tells of: all, {project: …}, or a list of monitors. Default: all.",
            ),
        )


class WindowEntrySerializer(WindowInputSerializer):
    def get_fields(self) -> Fields:
        return _entry(
            super().get_fields(),
            starts_at=TimeField(help_text="Of the first occurrence, with its offset from UTC."),
            ends_at=TimeField(help_text="Of the first occurrence, with its offset from UTC."),
            monitors=ScopeField(of_project=False, help_text="all, or a list of monitors."),
        )


class ShownMonitorSerializer(StrictSerializer):
    monitor = ReferenceField()
    name = TextField(max_length=200, help_text="On the page; the monitor's own name is not shown there.")


class GroupEntrySerializer(StrictSerializer):
    name = TextField(max_length=200, required=False, allow_blank=True, help_text="Default: no heading.")
    monitors = serializers.ListField(child=ShownMonitorSerializer(), max_length=MAX_MONITORS)


class PageEntrySerializer(PageInputSerializer):
    def get_fields(self) -> Fields:
        fields = super().get_fields()
        fields["password"].help_text = f"{fields['password'].help_text} {SECRET_HELP}"
        groups = serializers.ListField(
            child=GroupEntrySerializer(),
            required=False,
            max_length=MAX_GROUPS,
            help_text="In the order in which they are shown.",
        )
        return _entry(fields, groups=groups)


def _entry(fields: Fields, **changed: serializers.Field[Any, Any, Any, Any]) -> Fields:
    """The fields of the API's body as those of a file, which names what the API has ids of."""
    kept = {name: field for name, field in fields.items() if name not in _IDS}
    kept["name"] = TextField(max_length=200, help_text=fields["name"].help_text)
    project = TextField(required=False, allow_null=True, max_length=200, help_text=PROJECT_HELP)
    own_id = TextField(required=False, max_length=MAX_ID, help_text=ID_HELP)
    return {"id": own_id, "name": kept["name"], "project": project, **kept, **changed}


SECTIONS: dict[str, type[StrictSerializer]] = {
    "projects": ProjectEntrySerializer,
    "monitors": MonitorEntrySerializer,
    "channels": ChannelEntrySerializer,
    "maintenance_windows": WindowEntrySerializer,
    "status_pages": PageEntrySerializer,
}
"""In the order in which a file has them, and in which they are made."""


def secret_fields(section: str) -> tuple[str, ...]:
    """Return the fields that may contain placeholders, as the values of a monitor's headers may."""
    if section == "channels":
        return secret_settings()
    return ("password",) if section == "status_pages" else ()
