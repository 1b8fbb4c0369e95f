"""Habits of the database connection."""

from __future__ import annotations

from django.db import connection


def release_connection() -> None:
    """Give the connection back to the pool before waiting for the network.

    A wait inside a transaction would hold its locks for as long, so that is refused.
    """
    if connection.in_atomic_block:
        raise RuntimeError("the network must not be awaited inside a transaction")
    connection.close()


def hold(name: str) -> None:
    """Wait for the lock of that name, and hold it to the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_hold(name: str) -> bool:
    """The same without waiting: whether it is held now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])
