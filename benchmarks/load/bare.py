"""The least that a check can cost on this machine: libcurl and two statements, without anything of the product.

    python -m benchmarks.load.bare URL [CA_FILE]

One loop over AT_ONCE handles, with a new connection for each check. BATCH results are one transaction in the database
of DATABASE_URL: a COPY into a table without indexes, and an UPDATE FROM unnest of rows with a primary key. Each line on
standard input is a number of checks to make, and each line on standard output the CPU seconds of this process for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count

import psycopg
import pycurl

from benchmarks.load.target import ROOT, Target
from benchmarks.load.usage import cpu_seconds
from benchmarks.probing.ways import Job, bare_pycurl
from core.bulk import array

AT_ONCE, BATCH = 100, 200
MONITORS = 100_000

_TABLES = f"""
    DROP TABLE IF EXISTS bare_result, bare_state;
    CREATE TABLE bare_result (monitor_id bigint, checked_at timestamptz, latency_ms int, connect_ms int, ttfb_ms int,
                              http_status smallint, verdict text);
    CREATE TABLE bare_state (monitor_id bigint PRIMARY KEY, next_due_at timestamptz, last_checked_at timestamptz,
                             last_latency_ms int);
    INSERT INTO bare_state SELECT number FROM generate_series(0, {MONITORS - 1}) AS number;
    ANALYZE bare_state;
"""
_UPDATE = """
    UPDATE bare_state AS state
       SET next_due_at = new.next_due_at, last_checked_at = new.checked_at, last_latency_ms = new.latency_ms
      FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::int[])
               AS new (monitor_id, next_due_at, checked_at, latency_ms)
     WHERE state.monitor_id = new.monitor_id
"""
_MINUTE = timedelta(seconds=60)
_TIMES = (pycurl.TOTAL_TIME_T, pycurl.CONNECT_TIME_T, pycurl.STARTTRANSFER_TIME_T)


def bare_cpu_ms(target: Target, servers: Mapping[str, list[int]], scheme: str, *, checks: int) -> float:
    """Return the CPU of a check, that of the processes at `servers` included, in milliseconds."""
    port, ca_file = (target.https_port, [target.ca_file]) if scheme == "https" else (target.port, [])
    command = [sys.executable, "-m", __name__, f"{scheme}://{target.addresses[0]}:{port}/", *ca_file]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (AT_ONCE, checks):  # the first time warms it up
            before = sum(cpu_seconds(servers).values())
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise SystemExit("The bare pipeline ended; its reason stands above.")
            used = float(line) + sum(cpu_seconds(servers).values()) - before
    return 1000 * used / checks


class Store:
    """Keeps results until they are a batch, and writes it."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._numbers = count()
        self._rows: list[tuple[int, datetime, int, int, int, int]] = []

    def take(self, easy: pycurl.Curl) -> None:
        latency, connect, ttfb = (easy.getinfo(name) // 1000 for name in _TIMES)
        number = next(self._numbers) % MONITORS
        self._rows.append((number, datetime.now(UTC), latency, connect, ttfb, easy.getinfo(pycurl.RESPONSE_CODE)))
        if len(self._rows) == BATCH:
            self.write()

    def write(self) -> None:
        if not self._rows:
            return
        ids, ends, latencies, *_ = zip(*self._rows, strict=True)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            with cursor.copy("COPY bare_result FROM STDIN") as copy:
                copy.write("".join("\t".join(map(str, row)) + "\tup\n" for row in self._rows))
            due = array(end + _MINUTE for end in ends)
            cursor.execute(_UPDATE, [array(ids), due, array(ends), array(latencies)])
        self._rows.clear()


def main(url: str, ca_file: str | None = None) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(_TABLES)
        store = Store(connection)
        check = bare_pycurl(Job("bare_pycurl", url, AT_ONCE, ca_file), store.take)
        for line in sys.stdin:
            began = time.process_time()
            check(int(line))
            store.write()
            print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
