"""Re-encrypting stored secrets under the first of ENCRYPTION_KEYS while everything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cryptography.fernet import InvalidToken
from django.apps import apps
from django.db import connection
from django.db.models import Model

from core.crypto import EncryptedField, reencrypt

BATCH = 500

# Secrets inside a JSON column of allauth's, encrypted by MFA_ADAPTER.
_JSON_MEMBERS = (("mfa.Authenticator", "data", "secret"), ("mfa.Authenticator", "data", "seed"))


@dataclass(frozen=True, slots=True)
class EncryptedColumn:
    """An EncryptedField, or an encrypted `member` of a JSON column of objects."""

    model: type[Model]
    column: str
    member: str = ""

    def __str__(self) -> str:
        return ".".join(filter(None, [self.model._meta.label, self.column, self.member]))

    @property
    def token(self) -> str:
        """The SQL expression of the encrypted value as text."""
        column = f"target.{self.column}"
        return f"{column} ->> '{self.member}'" if self.member else f"convert_from({column}, 'UTF8')"

    @property
    def replacement(self) -> str:
        if self.member:
            return f"jsonb_set(target.{self.column}, '{{{self.member}}}', to_jsonb(change.after))"
        return "convert_to(change.after, 'UTF8')"


def encrypted_columns() -> list[EncryptedColumn]:
    columns = [
        EncryptedColumn(model, field.attname)
        for model in apps.get_models()
        for field in model._meta.local_concrete_fields
        if isinstance(field, EncryptedField)
    ]
    columns += [EncryptedColumn(apps.get_model(label), *rest) for label, *rest in _JSON_MEMBERS]
    return sorted(columns, key=str)


@dataclass(slots=True)
class Rotation:
    """The result for one column. `unreadable`: primary keys of the rows that no key decrypts."""

    reencrypted: int = 0
    current: int = 0
    unreadable: list[int] = field(default_factory=list)


def rotate(column: EncryptedColumn, *, batch: int = BATCH) -> Rotation:
    """Re-encrypt every row in primary-key batches and commit each batch.

    Can be interrupted and run again: rows under the first key are left alone. A concurrent write is never overwritten,
    because the UPDATE compares the value that was read; that row is read again.
    """
    done, after = Rotation(), 0
    while rows := _rows(column, "target.id > %s ORDER BY target.id LIMIT %s", after, batch):
        after = rows[-1][0]
        while rows:
            conflicts = _reencrypt(column, rows, done)
            rows = _rows(column, "target.id = ANY(%s)", conflicts) if conflicts else []
    return done


def _rows(column: EncryptedColumn, condition: str, *parameters: Any) -> list[tuple[int, str]]:
    """Return (primary key, encrypted value) of the rows that have a value."""
    table = connection.ops.quote_name(column.model._meta.db_table)
    statement = f"""
        SELECT target.id, {column.token} FROM {table} AS target WHERE {column.token} IS NOT NULL AND {condition}
    """  # noqa: S608  (names of our own columns)
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [(pk, token) for pk, token in cursor.fetchall()]


def _reencrypt(column: EncryptedColumn, rows: list[tuple[int, str]], done: Rotation) -> list[int]:
    """Update the rows by one statement. Return the primary keys of rows that changed since they were read."""
    changes: list[tuple[int, str, str]] = []
    for pk, token in rows:
        try:
            replacement = reencrypt(token)
        except InvalidToken:
            done.unreadable.append(pk)
            continue
        if replacement is None:
            done.current += 1
        else:
            changes.append((pk, token, replacement))
    if not changes:
        return []
    written = _write(column, changes)
    done.reencrypted += len(written)
    return [pk for pk, _, _ in changes if pk not in written]


def _write(column: EncryptedColumn, changes: list[tuple[int, str, str]]) -> set[int]:
    meta = column.model._meta
    statement = f"""
        UPDATE {connection.ops.quote_name(meta.db_table)} AS target
           SET {column.column} = {column.replacement}
          FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS change (id, before, after)
         WHERE target.id = change.id AND {column.token} = change.before
        RETURNING target.id
    """  # noqa: S608  (names of our own columns)
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(values) for values in zip(*changes, strict=True)])
        return {int(row[0]) for row in cursor.fetchall()}
