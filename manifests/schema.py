"""The JSON Schema of a manifest for editors, derived from its serializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework import serializers

from alerts.serializers import MAX_CHOSEN
from core.api.fields import BoolField, ChoiceField, IntField
from manifests.parsing import VERSION
from manifests.serializers import (
    PROJECT_HELP,
    REFERENCE_HELP,
    SECTIONS,
    ReferenceField,
    ScopeField,
    TimeField,
)

Schema = dict[str, Any]
Field = serializers.Field[Any, Any, Any, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_REFERENCE: Schema = {
    "description": REFERENCE_HELP,
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "properties": {
                "project": {"type": ["string", "null"], "description": PROJECT_HELP},
                "name": _TEXT,
            },
            "required": ["project", "name"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"id": _TEXT},
            "required": ["id"],
            "additionalProperties": False,
        },
    ],
}


def schema() -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pulsekeeper manifest",
        "type": "object",
        "required": ["version"],
        "additionalProperties": False,
        "properties": {
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
    }


def _object(serializer: serializers.Serializer[Any]) -> Schema:
    fields = serializer.fields
    found: Schema = {
        "type": "object",
        "properties": {name: _describe(field) for name, field in fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if field.required]
    return found | ({"required": required} if required else {})


def _describe(field: Field) -> Schema:
    found = _value(field)
    if field.help_text:
        found = {**found, "description": str(field.help_text)}
    if field.allow_null and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


def _value(field: Field) -> Schema:
    for kind, make in _VALUES:
        if isinstance(field, kind):
            return make(field)
    raise TypeError(f"{type(field).__name__} has no JSON Schema")


def _scope(field: Any) -> Schema:
    options: list[Schema] = [
        {"const": "all"},
        {"type": "array", "items": _REFERENCE, "maxItems": MAX_CHOSEN},
    ]
    if field.of_project:
        options.append(
            {
                "type": "object",
                "properties": {"project": {"type": ["string", "null"]}},
                "required": ["project"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": options}


def _integer(field: Any) -> Schema:
    bounds = {"minimum": field.min_value, "maximum": field.max_value}
    return {"type": "integer", **{name: value for name, value in bounds.items() if value is not None}}


def _text(field: Any) -> Schema:
    """Return the schema of a text. Secrets have no minimum length, because they may be placeholders."""
    bounds = {"maxLength": field.max_length}
    if not field.allow_blank and not field.write_only:
        bounds["minLength"] = 1
    return {"type": "string", **{name: value for name, value in bounds.items() if value is not None}}


def _list(field: Any) -> Schema:
    child = field.child
    items = _object(child) if isinstance(child, serializers.Serializer) else _describe(child)
    bounds = {} if field.max_length is None else {"maxItems": field.max_length}
    return {"type": "array", "items": items, **bounds}


_VALUES: tuple[tuple[type[Any], Callable[[Any], Schema]], ...] = (
    (ReferenceField, lambda _: _REFERENCE),
    (ScopeField, _scope),
    (TimeField, lambda _: {"type": "string", "format": "date-time"}),
    (ChoiceField, lambda field: {"enum": [*field.choices]}),
    (BoolField, lambda _: {"type": "boolean"}),
    (IntField, _integer),
    (serializers.ListField, _list),
    (serializers.CharField, _text),
)
