"""CPU time of this process and of PostgreSQL's backends, which other load of the machine changes little."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

SAMPLE_SEC = 0.02
_OPEN = """
    SELECT pid, xact_start, extract(epoch FROM clock_timestamp() - xact_start)
      FROM pg_stat_activity
     WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
       AND backend_type = 'client backend' AND query NOT LIKE '%CONCURRENTLY%'
"""


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the backends of its connections."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
        backends = [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for (pid,) in cursor.fetchall()]
    return time.process_time() + sum(map(int, backends)) / 1e9


def timed(action: Callable[[], Any], rows: float) -> tuple[float, Any]:
    """Run a step. Return the microseconds of CPU for each of `rows`, and its result."""
    start = cpu_seconds()
    found = action()
    return (cpu_seconds() - start) / max(rows, 1) * 1e6, found


def memory_mib() -> float:
    """Return the most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def temporary_bytes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def connect() -> psycopg.Connection:
    """Return a connection beside those of the pool."""
    own = {"cursor_factory": psycopg.Cursor, "prepare_threshold": None, "autocommit": True}
    return psycopg.connect(**connection.get_connection_params() | own)


@contextmanager
def longest_transaction() -> Iterator[list[float]]:
    """Yield a list whose only number is, when the block ends, the seconds of the longest transaction in it."""
    found, over, opened = [0.0], threading.Event(), connect()

    def sample() -> None:
        with opened as database:
            ((since,),) = database.execute("SELECT clock_timestamp()").fetchall()
            while not over.wait(SAMPLE_SEC):
                for _, began, seconds in database.execute(_OPEN).fetchall():
                    if began >= since:
                        found[0] = max(found[0], float(seconds))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield found
    finally:
        over.set()
        sampler.join()
