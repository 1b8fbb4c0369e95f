"""The format of tokens and of their stored parts: `svc_<lookup><secret>`, with 256 random bits in the secret."""

from __future__ import annotations

import secrets
from typing import Any

from django.utils.crypto import salted_hmac

from core.ids import ALPHABET, random_text

LOOKUP_LENGTH = 16  # 80 bits in base32, unique
SECRET_LENGTH = 52  # 256 bits in base32


def digest(plaintext: str) -> bytes:
    return salted_hmac("pulsekeeper.tokens", plaintext, algorithm="sha256").digest()


def issue(prefix: str) -> tuple[str, dict[str, Any]]:
    """Return a new token, which is shown once and never stored, and the columns that store it."""
    lookup = random_text(10)
    plaintext = prefix + lookup + random_text(32)
    return plaintext, {"lookup": lookup, "digest": digest(plaintext)}


def lookup_of(plaintext: str, *, prefix: str) -> str | None:
    """Return the lookup key, or None if the text cannot be a token."""
    rest = plaintext.removeprefix(prefix)
    if rest == plaintext or len(rest) != LOOKUP_LENGTH + SECRET_LENGTH or not set(rest) <= set(ALPHABET):
        return None
    return rest[:LOOKUP_LENGTH]


def matches(plaintext: str, stored: bytes | memoryview) -> bool:
    return secrets.compare_digest(digest(plaintext), bytes(stored))
