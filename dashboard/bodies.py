"""Validate forms with the API's serializers, so that limits are defined once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import first_reason
from core.api.fields import StrictSerializer
from core.errors import ValidationFailed


def validated(serializer: type[StrictSerializer], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated body. Raises ValidationFailed with the path of the first error."""
    parsed = serializer(data=body)
    if parsed.is_valid():
        return dict(parsed.validated_data)
    path, _, reason = first_reason(parsed.errors).partition(": ")
    raise ValidationFailed(reason, field=path)
