"""Re-encrypting what is sealed under the first of ENCRYPTION_KEYS, while everything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cryptography.fernet import InvalidToken
from django.db import connection
from django.db.models import F, QuerySet
from django.db.models.fields.json import KeyTextTransform

from core.crypto import SealedColumn, reseal

BATCH = 500


@dataclass(slots=True)
class Rotation:
    """What became of the rows of one column. `unreadable` holds the primary keys of those that no key opens."""

    resealed: int = 0
    current: int = 0
    unreadable: list[int] = field(default_factory=list)


def rotate(column: SealedColumn, *, batch: int = BATCH) -> Rotation:
    """Every row of the column in batches by primary key, each batch committed by itself.

    Broken off, it is simply started again: rows of the first key are recognised and left alone. A row that is
    written meanwhile is never overwritten, since a row changes only where it still holds what was read; it is then
    read again.
    """
    done, after = Rotation(), 0
    while rows := _rows(column, after=after, limit=batch):
        after = rows[-1][0]
        while rows:
            rows = _changed_meanwhile(column, _reseal(column, rows, done))
    return done


def _rows(column: SealedColumn, *, after: int, limit: int) -> list[tuple[int, str]]:
    return list(_sealed(column).filter(pk__gt=after).order_by("pk").values_list("pk", "sealed")[:limit])


def _sealed(column: SealedColumn) -> QuerySet[Any]:
    """The rows that hold something, with it as `sealed`."""
    value = KeyTextTransform(column.member, column.column) if column.member else F(column.column)
    rows = column.model._default_manager.annotate(sealed=value)
    return rows.exclude(sealed="").exclude(sealed=None)


def _changed_meanwhile(column: SealedColumn, ids: list[int]) -> list[tuple[int, str]]:
    """The rows as they are now; those that are gone or empty need nothing."""
    if not ids:
        return []
    return list(_sealed(column).filter(pk__in=ids).values_list("pk", "sealed"))


def _reseal(column: SealedColumn, rows: list[tuple[int, str]], done: Rotation) -> list[int]:
    """One conditional UPDATE for all of them; the ids of those that somebody wrote between reading and writing."""
    changes: list[tuple[int, str, str]] = []
    for pk, sealed in rows:
        try:
            anew = reseal(sealed)
        except InvalidToken:
            done.unreadable.append(pk)
            continue
        if anew is None:
            done.current += 1
        else:
            changes.append((pk, sealed, anew))
    if not changes:
        return []
    written = _write(column, changes)
    done.resealed += len(written)
    return [pk for pk, _, _ in changes if pk not in written]


def _write(column: SealedColumn, changes: list[tuple[int, str, str]]) -> set[int]:
    quote = connection.ops.quote_name
    meta = column.model._meta
    key, name = quote(str(meta.pk.column)), quote(str(meta.get_field(column.column).column))  # type: ignore[union-attr]
    stored, anew = f"target.{name}", "change.anew"
    if column.member:
        anew = f"jsonb_set({stored}, '{{{column.member}}}', to_jsonb({anew}))"
        stored = f"{stored} ->> '{column.member}'"
    statement = f"""
        UPDATE {quote(meta.db_table)} AS target
           SET {name} = {anew}
          FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS change (id, sealed, anew)
         WHERE target.{key} = change.id AND {stored} = change.sealed
        RETURNING target.{key}
    """  # noqa: S608  (names of our own columns)
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(values) for values in zip(*changes, strict=True)])
        return {int(row[0]) for row in cursor.fetchall()}
