"""The pool of database connections."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# In a separate process: here, threads of other tests may use connections of the pool.
SCRIPT = """
import django; django.setup()
import os
import threading
from concurrent.futures import ThreadPoolExecutor
import psycopg
from django.db import connection
from core.db import release_connection

def backend_pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

# As many as can be: after a restart of PostgreSQL they are all dead.
with ThreadPoolExecutor(max_workers=8) as threads:
    barrier = threading.Barrier(8)
    def hold():
        backend_pid()
        barrier.wait(10)
        release_connection()
    for held in [threads.submit(hold) for _ in range(8)]:
        held.result()
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, application_name="other") as other:
    ended = dict(other.execute(
        "SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pooled'"
    ).fetchall())
assert len(ended) >= 8, "the pool has kept the connections"
assert backend_pid() not in ended
release_connection()
stats = connection.pool.get_stats()
assert stats.get("returns_bad") == 1 and "connections_lost" not in stats, f"one is tried, not each: {stats}"
assert not {held.info.backend_pid for held in connection.pool._pool} & set(ended)
print("ok")
"""


def test_a_connection_that_died_in_the_pool_is_not_handed_out() -> None:
    """After a restart of PostgreSQL every pooled connection is dead, and the next request comes much later."""
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
