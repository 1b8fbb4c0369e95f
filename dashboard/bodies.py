"""What a form sends, judged by the serializers that judge the API's bodies: one place says how long a name may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import first_reason
from core.api.fields import StrictSerializer
from core.errors import ValidationFailed


def validated(serializer: type[StrictSerializer], body: Mapping[str, Any]) -> dict[str, Any]:
    """The body as a view of the API would pass it on; raises ValidationFailed with the path of what is wrong."""
    parsed = serializer(data=body)
    if parsed.is_valid():
        return dict(parsed.validated_data)
    path, _, reason = first_reason(parsed.errors).partition(": ")
    raise ValidationFailed(reason, field=path)
