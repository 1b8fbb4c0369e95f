"""The JSON Schema of a manifest for editors, derived from its serializers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rest_framework import serializers

from alerts.serializers import MAX_CHOSEN
from core.api.fields import BoolField, ChoiceField, IntField
from manifests.parsing import VERSION
from manifests.serializers import (
    PROJECT_HELP,
    REFERENCE_HELP,
    SECTIONS,
    Field,
    NamedField,
    ReferenceField,
    ScopeField,
    TargetField,
    TimeField,
)

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1}


def _map(properties: Schema, required: Sequence[str] = ()) -> Schema:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": [*required]} if required else {})


_REFERENCE: Schema = {
    "description": REFERENCE_HELP,
    "anyOf": [
        _TEXT,
        _map(
            {"project": {"type": ["string", "null"], "description": PROJECT_HELP}, "name": _TEXT}, ["project", "name"]
        ),
        _map({"id": _TEXT}, ["id"]),
    ],
}


_NAME_OR_ID: Schema = {"anyOf": [_TEXT, _map({"id": _TEXT}, ["id"])]}
_TARGET: Schema = {
    "anyOf": [
        _map({"user": _TEXT}, ["user"]),
        _map({"schedule": _NAME_OR_ID}, ["schedule"]),
        _map({"channel": _NAME_OR_ID}, ["channel"]),
    ]
}


def schema() -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pulsekeeper manifest",
        **_map(
            {
                "version": {"const": VERSION, "description": "Version of the format."},
                "ungrouped": {
                    "type": "boolean",
                    "default": False,
                    "description": "Whether --prune may delete what belongs to no project and is not in this file.",
                },
                **{
                    name: {"type": ["array", "null"], "items": _object(serializer())}
                    for name, serializer in SECTIONS.items()
                },
            },
            ["version"],
        ),
    }


def _object(serializer: serializers.Serializer[Any]) -> Schema:
    fields = serializer.fields
    properties = {name: _describe(field) for name, field in fields.items()}
    return _map(properties, [name for name, field in fields.items() if field.required])


def _describe(field: Field) -> Schema:
    make = next(make for kind, make in _VALUES if isinstance(field, kind))
    found = {name: value for name, value in make(field).items() if value is not None}
    if field.help_text:
        found["description"] = str(field.help_text)
    if field.allow_null and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


def _scope(field: Any) -> Schema:
    of_project = _map({"project": {"type": ["string", "null"]}}, ["project"])
    chosen = {"type": "array", "items": _REFERENCE, "maxItems": MAX_CHOSEN}
    return {"anyOf": [{"const": "all"}, chosen, *([of_project] if field.of_project else [])]}


def _text(field: Any) -> Schema:
    """Return the schema of a text. Secrets have no minimum length, because they may be placeholders."""
    shortest = None if field.allow_blank or field.write_only else 1
    return {"type": "string", "maxLength": field.max_length, "minLength": shortest}


def _list(field: Any) -> Schema:
    child = field.child
    items = _object(child) if isinstance(child, serializers.Serializer) else _describe(child)
    return {"type": "array", "items": items, "maxItems": field.max_length}


_VALUES: tuple[tuple[type[Any], Callable[[Any], Schema]], ...] = (
    (ReferenceField, lambda _: _REFERENCE),
    (NamedField, lambda _: {"anyOf": [*_NAME_OR_ID["anyOf"], {"type": "null"}]}),
    (TargetField, lambda _: _TARGET),
    (ScopeField, _scope),
    (TimeField, lambda _: {"type": "string", "format": "date-time"}),
    (ChoiceField, lambda field: {"enum": [*field.choices]}),
    (BoolField, lambda _: {"type": "boolean"}),
    (IntField, lambda field: {"type": "integer", "minimum": field.min_value, "maximum": field.max_value}),
    (serializers.ListField, _list),
    (serializers.Serializer, _object),
    (serializers.CharField, _text),
    (serializers.Serializer, _object),
)
