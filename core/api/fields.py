"""Strict serializer fields: `"60"` is not an integer, and `true` is not 1."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.api.errors import validation_failed
from core.clock import MAX_MS, from_ms, to_ms

MAX_INT = 2_147_483_647


class IntField(serializers.IntegerField):
    """A whole number, by default one that fits a 32-bit column."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": -MAX_INT, "max_value": MAX_INT} | kwargs)

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            raise serializers.ValidationError("must be an integer.")
        return data


class BoolField(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if type(data) is not bool:
            raise serializers.ValidationError("must be true or false.")
        return data


class TextField(serializers.CharField):
    """A string that is not trimmed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False} | kwargs)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        # CharField accepts numbers as text.
        if data is not serializers.empty and data is not None and not isinstance(data, str):
            raise serializers.ValidationError("must be a string.")
        return super().run_validation(data)


class ChoiceField(serializers.ChoiceField):
    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str) or data not in self.choices:
            raise serializers.ValidationError(f"must be one of {', '.join(map(str, self.choices))}.")
        return data


class ListField(serializers.ListField):
    """A list that is validated only if it is short enough: a body can contain 50,000 items."""

    def run_child_validation(self, data: Any) -> Any:
        if self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        return super().run_child_validation(data)


@extend_schema_field(OpenApiTypes.INT64)
class EpochMsField(serializers.Field[datetime, Any, int, Any]):
    """The one place where a time becomes epoch milliseconds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: datetime) -> int:
        return to_ms(value)


class MomentField(IntField):
    """A time in a body: epoch milliseconds, validated to an aware datetime."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, max_value=MAX_MS, **kwargs)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        ms = super().run_validation(data)
        return from_ms(ms) if isinstance(ms, int) else ms


class StrictSerializer(serializers.Serializer[Any]):
    """A request body: a JSON object without unknown fields, and with null only where a field allows it.

    `ignored` names read-only fields, so that clients can send back what they read.
    """

    ignored: frozenset[str] = frozenset()

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({"non_field_errors": ["The body must be a JSON object."]})
        writable = {name for name, field in self.fields.items() if not field.read_only}
        for name in data:
            if name not in writable and name not in self.ignored:
                raise serializers.ValidationError({str(name)[:100]: ["is not a field of this request."]})
        return super().to_internal_value({k: v for k, v in data.items() if k in writable})


def validated(serializer: type[StrictSerializer], body: Any) -> dict[str, Any]:
    """Validate a body with a serializer of the API. Raises ValidationFailed with the path of the first error."""
    parsed = serializer(data=body)
    if not parsed.is_valid():
        raise validation_failed(parsed.errors)
    return dict(parsed.validated_data)
