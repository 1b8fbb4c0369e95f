"""Secrets at rest, encrypted by Fernet. Several keys may be known: the first seals, all of them open."""

from __future__ import annotations

from functools import cache

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings


@cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def seal(plaintext: str) -> str:
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(plaintext.encode()).decode()


def unseal(sealed: str) -> str:
    """The plaintext; raises `cryptography.fernet.InvalidToken` where no known key fits."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(sealed.encode()).decode()
