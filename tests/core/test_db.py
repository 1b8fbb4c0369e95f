"""The pool of database connections."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# In a process of its own: here, threads of other tests may hold what the pool has to give.
SCRIPT = """
import django; django.setup()
import psycopg
from django.conf import settings
from django.db import connection
from core.db import release_connection

def backend_pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

backend_pid()
release_connection()
with psycopg.connect(settings.ENV.database_url, autocommit=True, application_name="other") as other:
    ended = dict(other.execute(
        "SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pooled'"
    ).fetchall())
assert ended, "the pool has kept a connection"
for _ in range(len(ended) + 1):  # the pool hands out one after the other
    assert backend_pid() not in ended
    release_connection()
print("ok")
"""


def test_a_connection_that_died_in_the_pool_is_not_handed_out() -> None:
    """After a restart of PostgreSQL every pooled connection is dead, and work comes long after."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings", "PGAPPNAME": "pooled"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr
