"""Creating once, however often a request is sent: the header Idempotency-Key on POST.

After the IETF draft "The Idempotency-Key HTTP Header Field". A key belongs to one caller, one address and one body for
24 hours. Here and not in core, since it has rows, and in the lowest app that knows who calls.

Where a process dies:
- before the commit: neither row nor object is there, and a repetition is a first request;
- after it: the row names the object, and a repetition answers with it. A monitor's first check, should it have died
  with the process, is made by the scheduler when the lease ends.
A request that fails rolls its row back, so it can be repeated once what was wrong is mended.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, connection, transaction
from django.utils.crypto import constant_time_compare, salted_hmac
from psycopg.errors import LockNotAvailable

from core.crypto import seal, unseal
from core.errors import IdempotencyKeyInUse, ValidationFailed
from projects.access import Caller
from projects.models import IdempotencyKey

if TYPE_CHECKING:  # workers delete old keys, and have no use for DRF
    from rest_framework.request import Request

HEADER = "Idempotency-Key"
LIFETIME = timedelta(hours=24)
MAX_LENGTH = 255
PATIENCE_MS = 10_000

# A row older than a day is as none. One statement, so that of two requests at once one gets the key; the other waits
# at the unique index until the first commits or fails.
_CLAIM = """
    INSERT INTO projects_idempotencykey (caller, key, fingerprint, created_at, object_id, sealed_answer)
    VALUES (%(caller)s, %(key)s, %(fingerprint)s, %(now)s, '', '')
    ON CONFLICT (caller, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, created_at = excluded.created_at, object_id = '', sealed_answer = ''
     WHERE projects_idempotencykey.created_at <= %(expired)s
    RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What a request created: its public id, and the answer where a repetition is to give exactly that one."""

    object_id: str
    answer: Any = None
    repeated: bool = False


def once(request: Request, caller: Caller, make: Callable[[], Made], *, now: datetime) -> Made:
    """What `make` made, now or under the same key before; `make` runs in the transaction that keeps the key.

    Raises IdempotencyKeyInUse where a first request with the key is still at work after PATIENCE_MS.
    """
    key = _key_of(request)
    if key is None:
        return make()
    return once_for(caller, key=key, content=[request.method, request.path, request.data], make=make, now=now)


def once_for(caller: Caller, *, key: str, content: Any, make: Callable[[], Made], now: datetime) -> Made:
    """The same for a key that came otherwise, as with a page's form; `content` is what a repetition has to repeat.

    Raises ValidationFailed where the key came with another content before.
    """
    fingerprint = _fingerprint(content)
    with transaction.atomic():
        row_id = _claim(caller, key, fingerprint, now=now)
        if row_id is None:
            return _recall(caller, key, fingerprint)
        made = make()
        IdempotencyKey.objects.filter(pk=row_id).update(
            object_id=made.object_id,
            sealed_answer="" if made.answer is None else seal(json.dumps(made.answer)),
        )
    return made


def delete_old_keys(now: datetime) -> int:
    deleted, _ = IdempotencyKey.objects.filter(created_at__lte=now - LIFETIME).delete()
    return deleted


def _key_of(request: Request) -> str | None:
    key = request.headers.get(HEADER)
    if key is not None and not (0 < len(key) <= MAX_LENGTH and key.isascii() and key.isprintable()):
        raise ValidationFailed(f"must be 1 to {MAX_LENGTH} printable ASCII characters.", field=HEADER)
    return key


def _fingerprint(content: Any) -> bytes:
    """Keyed, for a body may hold secrets; the order of its fields does not matter."""
    text = json.dumps(content, sort_keys=True)
    return salted_hmac("pulsekeeper.idempotency", text, algorithm="sha256").digest()


def _claim(caller: Caller, key: str, fingerprint: bytes, *, now: datetime) -> int | None:
    """The new row's id; None where the key is taken."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{PATIENCE_MS}ms"])
        try:
            cursor.execute(
                _CLAIM,
                {
                    "caller": caller.key,
                    "key": key,
                    "fingerprint": fingerprint,
                    "now": now,
                    "expired": now - LIFETIME,
                },
            )
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                raise IdempotencyKeyInUse from None
            raise
        row = cursor.fetchone()
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
    return None if row is None else int(row[0])


def _recall(caller: Caller, key: str, fingerprint: bytes) -> Made:
    row = IdempotencyKey.objects.get(caller=caller.key, key=key)
    if not constant_time_compare(bytes(row.fingerprint), fingerprint):
        raise ValidationFailed("was used for another request; use a new key.", field=HEADER)
    answer = json.loads(unseal(row.sealed_answer)) if row.sealed_answer else None
    return Made(row.object_id, answer, repeated=True)
