"""The contents of the encrypted columns of all tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.crypto import decrypt
from core.rotation import _rows, encrypted_columns


class Stored(NamedTuple):
    table: str
    token: str
    plaintext: str


def stored_secrets() -> Iterator[Stored]:
    for column in encrypted_columns():
        for _, token in _rows(column, "true"):
            yield Stored(column.model._meta.db_table, token, decrypt(token))
