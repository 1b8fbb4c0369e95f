"""Secrets at rest, encrypted by Fernet. Several keys may be known: the first seals, all of them open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db.models import Model


@cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def seal(plaintext: str) -> str:
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(plaintext.encode()).decode()


def unseal(sealed: str) -> str:
    """The plaintext; raises `cryptography.fernet.InvalidToken` where no known key fits."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(sealed.encode()).decode()


def reseal(sealed: str) -> str | None:
    """The same secret under the first key; None where that key sealed it already. Raises as `unseal` does."""
    keys = tuple(settings.ENCRYPTION_KEYS)
    try:
        _fernet(keys[:1]).decrypt(sealed.encode())
    except InvalidToken:
        return _fernet(keys).rotate(sealed.encode()).decode()
    return None


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A text column that holds what `seal` made, or is empty; or a JSON column of objects whose `member` does."""

    model: type[Model]
    column: str
    member: str = ""

    def __str__(self) -> str:
        return ".".join(filter(None, [self.model._meta.label, self.column, self.member]))


_columns: dict[str, SealedColumn] = {}


def register_sealed(model: type[Model], column: str, *, member: str = "") -> None:
    """Have `manage.py rotate_encryption_key` re-encrypt this column. Called beside the model."""
    sealed = SealedColumn(model, column, member)
    _columns[str(sealed)] = sealed


def sealed_columns() -> list[SealedColumn]:
    return [_columns[name] for name in sorted(_columns)]
