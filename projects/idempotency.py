"""Keys of the header Idempotency-Key: a repeated request with the same key creates nothing again.

A key belongs to one caller, one URL and one body for 24 hours. Its row and the object are committed together: if a
process dies before the commit, a retry counts as a first request; after it, a retry returns the object. A request that
fails rolls its row back and can be retried.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils.crypto import constant_time_compare, salted_hmac

from core.api.idempotency import HEADER, Created
from core.db import LockTimeoutError, lock_timeout
from core.errors import IdempotencyKeyInUse, ValidationFailed
from projects.access import Caller
from projects.models import IdempotencyKey

LIFETIME = timedelta(hours=24)
LOCK_TIMEOUT_SEC = 10

# Rows older than 24 hours count as absent and are overwritten. One statement, so that one of two concurrent requests
# gets the key; the other waits at the unique index until the first commits or fails.
_CLAIM = """
    INSERT INTO projects_idempotencykey (caller, key, fingerprint, created_at, object_id)
    VALUES (%s, %s, %s, %s, '')
    ON CONFLICT (caller, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, created_at = excluded.created_at, object_id = '', answer = NULL
     WHERE projects_idempotencykey.created_at <= %s
    RETURNING id
"""


def create_once(caller: Caller, *, key: str, content: Any, create: Callable[[], Created], now: datetime) -> Created:
    """Return what `create` created, now or earlier with the same key. It runs in the transaction that stores the key.

    `content` identifies the request. Raises ValidationFailed if an earlier request had the key and other content, and
    IdempotencyKeyInUse if the first request with the key is still running after LOCK_TIMEOUT_SEC.
    """
    # Keyed, because a body may contain secrets. The order of its fields does not matter.
    text = json.dumps(content, sort_keys=True)
    fingerprint = salted_hmac("pulsekeeper.idempotency", text, algorithm="sha256").digest()
    with transaction.atomic():
        row_id = _claim(caller, key, fingerprint, now=now)
        if row_id is None:
            row = IdempotencyKey.objects.get(caller=caller.key, key=key)
            if not constant_time_compare(bytes(row.fingerprint), fingerprint):
                raise ValidationFailed("was used for another request; use a new key.", field=HEADER)
            return Created(row.object_id, row.answer, repeated=True)
        created = create()
        IdempotencyKey.objects.filter(pk=row_id).update(object_id=created.object_id, answer=created.answer)
    return created


def _claim(caller: Caller, key: str, fingerprint: bytes, *, now: datetime) -> int | None:
    """Return the id of the new row, or None if the key is taken."""
    values = (caller.key, key, fingerprint, now, now - LIFETIME)
    try:
        with connection.cursor() as cursor, lock_timeout(LOCK_TIMEOUT_SEC):
            cursor.execute(_CLAIM, values)
            row = cursor.fetchone()
    except LockTimeoutError:
        raise IdempotencyKeyInUse from None
    return None if row is None else int(row[0])
