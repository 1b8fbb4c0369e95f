"""Credentials of programs: a prefix, a lookup key and a secret. The plaintext is shown once.

Rows store the lookup key and a keyed digest, in the columns `lookup` and `digest`.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.utils.crypto import constant_time_compare, salted_hmac

from core.ids import random_text

M = TypeVar("M", bound=Model)


def _digest(plaintext: str) -> bytes:
    return salted_hmac("pulsekeeper.tokens", plaintext, algorithm="sha256").digest()


def issue(prefix: str) -> tuple[str, dict[str, Any]]:
    """Return a new credential, `<prefix><lookup><secret>`, and the columns that store it."""
    lookup = random_text(10)
    plaintext = prefix + lookup + random_text(32)
    return plaintext, {"lookup": lookup, "digest": _digest(plaintext)}


def lookup_of(plaintext: str, *, prefix: str) -> str | None:
    """Return the lookup key, or None if the text cannot be a credential with this prefix."""
    # In base32: a unique key of 80 bits, and a secret of 256.
    found = re.fullmatch(rf"{prefix}([a-z2-7]{{16}})[a-z2-7]{{52}}", plaintext)
    return found and found[1]


def find(rows: QuerySet[M], plaintext: str, *, prefix: str) -> M | None:
    """Return the row of the credential, or None."""
    lookup = lookup_of(plaintext, prefix=prefix)
    if lookup is None:
        return None
    # Every request of the API runs this query, and its conditions and order take time to compile.
    found = next(iter(rows.filter(lookup=lookup)), None)
    digest: Any = getattr(found, "digest", b"")
    return found if constant_time_compare(_digest(plaintext), bytes(digest)) else None
