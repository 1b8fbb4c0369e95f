"""What openapi.json says of the header that `projects.idempotency` reads."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter

from projects.idempotency import HEADER, MAX_LENGTH

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    description="Anything that names this attempt, a UUID for example. The same key and body within 24 hours create "
    "once, and answer the same; another body under the same key is refused with 422.",
)
