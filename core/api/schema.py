"""What drf-spectacular cannot read off the code: the Error object and the answers every endpoint shares."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="A stable code in snake_case.")
    reason = serializers.CharField(required=False, help_text="A sentence for a person; names the field.")
    limit = serializers.IntegerField(required=False, help_text="The cap that was met.")


class PulsekeeperSchema(AutoSchema):
    """Adds the Error answers of decision 16 to each operation; a view adds its own through `extend_schema`."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        if self.path.startswith("/v1/") and direction == "response":
            public = not self.get_auth()
            shared = {"422": "Validation error"} | ({} if public else {"401": "Missing or invalid token"})
            if "{" in self.path:
                shared["404"] = "Not found"
            shared["default"] = "Any other error"
            for code, description in shared.items():
                if code not in bodies:
                    body: dict[str, Any] = self._get_response_for_code(ErrorSerializer, code)  # type: ignore[no-untyped-call]
                    bodies[code] = body | {"description": description}
        return bodies
