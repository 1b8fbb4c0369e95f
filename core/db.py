"""Helpers for the database: get a row, release the connection, lock by name, iterate in chunks, prepare a statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from django.db import connection
from django.db.models import Model, QuerySet

from core.errors import NotFound

M = TypeVar("M", bound=Model)


def get_or_not_found(rows: QuerySet[M], **conditions: Any) -> M:
    """Return the row that matches. Raise NotFound, which the API answers with 404."""
    found = rows.filter(**conditions).first()
    if found is None:
        raise NotFound
    return found


def release_connection() -> None:
    """Return the connection to the pool before waiting for the network.

    Raises RuntimeError in a transaction, which would keep its locks during the wait.
    """
    if connection.in_atomic_block:
        raise RuntimeError("the network must not be awaited inside a transaction")
    connection.close()


@contextmanager
def separate_connection(*, patience_sec: int) -> Iterator[psycopg.Connection]:
    """Open a separate connection in autocommit, for callers that cannot wait for the pool. Raises psycopg.Error.

    `patience_sec` limits connecting, for which libpq's minimum is 2, and each statement.
    """
    parameters = connection.get_connection_params() | {
        "connect_timeout": patience_sec,
        "options": f"-c statement_timeout={patience_sec * 1000}",
        "cursor_factory": psycopg.Cursor,
    }
    parameters.pop("pool", None)
    with psycopg.connect(**parameters, autocommit=True) as database:
        yield database


def advisory_lock(name: str) -> None:
    """Wait for the lock of that name, and keep it until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_advisory_lock(name: str) -> bool:
    """Take the lock without waiting. Return whether it was free."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])


CHUNK_ROWS = 500


def chunks(queryset: QuerySet[M]) -> Iterator[list[M]]:
    """Iterate a large queryset in primary-key chunks, releasing the connection in between.

    Rows that are added during the iteration may be missing.
    """
    last: int = 0
    while rows := list(queryset.filter(pk__gt=last).order_by("pk")[:CHUNK_ROWS]):
        last = rows[-1].pk
        release_outside_transaction()
        yield rows


def release_outside_transaction() -> None:
    """Give the connection back to the pool: the reader of a download may be slow. Do nothing in a transaction."""
    if not connection.in_atomic_block:
        connection.close()


def fetch_prepared(statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that each connection plans once, in autocommit or the open transaction.

    For short statements that run thousands of times a second, whose planning costs more than they do. A pooler
    between us and PostgreSQL must support prepared statements (PgBouncer does, from 1.21 on).
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        # Not Django's cursor, which writes the values into the statement.
        cursor.execute(statement, values, prepare=True)
        return cursor.fetchall()
