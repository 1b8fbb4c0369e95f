"""A statement that each database connection plans once and then only executes.

For short statements on a path that is walked thousands of times a second, whose planning costs more than they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connection


def fetch_prepared(statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Run the statement in autocommit, or in the transaction that is open; the rows that it gives.

    `values` go to the server apart from the statement, unlike those of Django's own cursor, which writes them into it.
    A pooler between us and PostgreSQL must know prepared statements (PgBouncer does, from 1.21 on).
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, values, prepare=True)
        return cursor.fetchall()
