"""What drf-spectacular cannot read off the code: the Error object, the answers every endpoint shares, strict bodies."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from core.api.fields import StrictSerializer, TextField

# No text in PostgreSQL holds one.
NO_NUL = "^[^\\u0000]*$"


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="A stable code in snake_case.")
    reason = serializers.CharField(required=False, help_text="A sentence for a person; names the field.")
    limit = serializers.IntegerField(required=False, help_text="The cap that was met.")


class PulsekeeperSchema(AutoSchema):
    """Adds the Error answers of decision 16 to each operation; a view adds its own through `extend_schema`."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        if self.path.startswith("/v1/") and direction == "response":
            shared = {"422": "Validation error", "429": "Too many requests", "default": "Any other error"}
            if self.view.authentication_classes:
                shared["401"] = "Missing or invalid token"
            if "{" in self.path:
                shared["404"] = "Not found"
            if self._takes_a_body():
                shared |= {"413": "Body too large", "415": "Unsupported media type"}
            for code, description in shared.items():
                if code not in bodies:
                    body: dict[str, Any] = self._get_response_for_code(ErrorSerializer, code)  # type: ignore[no-untyped-call]
                    bodies[code] = body | {"description": description}
        return bodies

    def _takes_a_body(self) -> bool:
        """drf-spectacular expects none of a DELETE; a view whose has one says so by `delete_has_body`."""
        deletion = self.method == "DELETE" and getattr(self.view, "delete_has_body", False)
        return (
            deletion or self.method in {"POST", "PUT", "PATCH"}
        ) and self.get_request_serializer() is not None

    def _get_request_body(self, direction: Literal["request", "response"] = "request") -> Any:
        method = self.method
        if method == "DELETE" and self._takes_a_body():
            self.method = "POST"
        try:
            return super()._get_request_body(direction)  # type: ignore[no-untyped-call]
        finally:
            self.method = method

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """A body takes its own fields only (decision 12), and those that it ignores."""
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if isinstance(serializer, StrictSerializer):
            if serializer.ignored:
                schema["propertyNames"] = {"enum": sorted({*schema["properties"], *serializer.ignored})}
            else:
                schema["additionalProperties"] = False
            for name, field in serializer.fields.items():
                if isinstance(field, TextField):
                    text = schema["properties"][name]
                    text.setdefault("pattern", NO_NUL)
                    if not field.allow_blank:
                        text.setdefault("minLength", 1)
        return schema
