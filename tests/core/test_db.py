"""The pool of database connections."""

from __future__ import annotations

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from core.db import release_connection


def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    return int(pid)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_died_in_the_pool_is_not_handed_out() -> None:
    """After a restart of PostgreSQL every pooled connection is dead, and work comes long after."""
    backend_pid()
    release_connection()
    given = settings.DATABASES["default"]
    with psycopg.connect(
        host=given["HOST"], user=given["USER"], dbname=given["NAME"], autocommit=True
    ) as other:
        rows = other.execute(
            "SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    assert rows, "the pool has kept a connection"
    for _ in range(len(rows) + 1):  # the pool hands out one after the other
        assert backend_pid() not in dict(rows)
        release_connection()
