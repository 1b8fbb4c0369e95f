"""The Idempotency-Key header of POST requests, after the IETF draft "The Idempotency-Key HTTP Header Field"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

from core.errors import ValidationFailed

if TYPE_CHECKING:  # workers delete old keys and do not load DRF
    from rest_framework.request import Request

HEADER = "Idempotency-Key"
MAX_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Created:
    """The created object: its public id, and the response body if a repetition must return exactly the same."""

    object_id: str
    answer: Any = None
    repeated: bool = False


def create_once(request: Request, caller: Any, create: Callable[[], Created], *, now: datetime) -> Created:
    """Return what `create` created, now or for an earlier request with the same key.

    `IDEMPOTENCY_STORE` of the settings keeps the keys: it needs a model, and core has none. Raises
    IdempotencyKeyInUse while the first request with the key is still running.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return create()
    if not (0 < len(key) <= MAX_LENGTH and key.isascii() and key.isprintable()):
        raise ValidationFailed(f"must be 1 to {MAX_LENGTH} printable ASCII characters.", field=HEADER)
    content = [request.method, request.path, request.data]
    created: Created = import_string(settings.IDEMPOTENCY_STORE)(
        caller, key=key, content=content, create=create, now=now
    )
    return created
