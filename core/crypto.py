"""Encryption of secrets at rest with Fernet. The first of ENCRYPTION_KEYS encrypts, all of them decrypt."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models
from django.db.models.query_utils import DeferredAttribute
from django_cryptography.fields import EncryptedMixin


@cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(plaintext: str) -> str:
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(plaintext.encode()).decode()


def decrypt(token: str | bytes) -> str:
    """Return the plaintext. Raises `cryptography.fernet.InvalidToken` if no key decrypts it."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(token).decode()


def reencrypt(token: str) -> str | None:
    """Return the same secret under the first key, or None if it is under that key already. Raises InvalidToken."""
    keys = tuple(settings.ENCRYPTION_KEYS)
    try:
        _fernet(keys[:1]).decrypt(token)
    except InvalidToken:
        return _fernet(keys).rotate(token).decode()
    return None


class Ciphertext(bytes):
    """An encrypted value in its stored form."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Ciphertext(…)"

    __str__ = __repr__

    def decrypt(self) -> Any:
        """Return the value. Raises InvalidToken."""
        return json.loads(decrypt(self))


class _DecryptingAttribute(DeferredAttribute):
    """Decrypt on first use: most rows are loaded for their other columns."""

    def __get__(self, instance: models.Model | None, cls: type[models.Model] | None = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, Ciphertext) and instance is not None:
            value = instance.__dict__[self.field.attname] = value.decrypt()
        return value

    def __set__(self, instance: models.Model, value: Any) -> None:
        # With a setter Python calls __get__ although the instance has a value.
        instance.__dict__[self.field.attname] = value


class EncryptedField(EncryptedMixin, models.Field):  # type: ignore[type-arg]  # (the mixin has no annotations)
    """A JSON value, encrypted. None is stored as NULL.

    The column and lookups are django-cryptography's. Its cipher takes one key and its format is pickle, so both are
    replaced. Model attributes decrypt lazily; `values_list` returns Ciphertext.
    """

    descriptor_class = _DecryptingAttribute
    empty_strings_allowed = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["editable"] = False
        super().__init__(*args, **kwargs)

    def _dump(self, value: Any) -> bytes:
        return bytes(value) if isinstance(value, Ciphertext) else encrypt(json.dumps(value)).encode()

    def to_text(self, value: Any) -> str | None:
        """Return the encrypted value for raw SQL."""
        return None if value is None else self._dump(value).decode()

    def from_db_value(self, value: Any, *args: Any) -> Ciphertext | None:
        return None if value is None else Ciphertext(value)

    def value_from_object(self, obj: models.Model) -> Ciphertext | None:
        """Return the encrypted value, also if it was decrypted: this is what `dumpdata` reads."""
        value = vars(obj).get(self.attname)
        return None if value is None else Ciphertext(self._dump(value))

    def value_to_string(self, obj: models.Model) -> str:
        return self.to_text(self.value_from_object(obj)) or ""

    def clone(self) -> EncryptedField:
        return models.Field.clone(self)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = models.Field.deconstruct(self)
        kwargs.pop("editable", None)
        return name, path, args, kwargs
