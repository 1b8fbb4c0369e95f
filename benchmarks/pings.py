"""Measure heartbeat pings: how many a second, and the cost of one.

    python benchmarks/pings.py [--connections N] [--fresh] [--web COMMAND]

Over loopback http with the web server of the Procfile, on private servers whose PostgreSQL is durable. MONITORS
(5,000) heartbeats that are up are pinged at random for SECONDS_TO_RUN (10) over N connections, which are kept alive,
or with --fresh opened for each ping. Throttles are active, with a limit that is never reached. Then PostgreSQL is
killed (-9), and every acknowledged ping is looked up. The last line is one JSON object; CPU is that of web, PostgreSQL
and Valkey. Exits 1 if a ping was lost or refused, or the goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import signal
import socket
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import Serving, serving

GOAL = 2_500
WARM_UP_SEC = 1.0
RECOVERY_SEC = 60

FILL = """
import django; django.setup()
from datetime import timedelta
from accounts.models import Plan
from accounts.services import create_account
from core.clock import utc_now
from django.db import connection
from monitors.configuration import build, config_columns
from monitors.models import Monitor, MonitorState
import os
now = utc_now()
user = create_account(email="bench@example.com", password="a fine long password", plan="pro")
columns = config_columns(build({"interval_sec": 3600, "type": "heartbeat", "name": "Backup"}))
made = Monitor.objects.bulk_create(
    Monitor(owner=user, created_at=now, **columns) for _ in range(int(os.environ["MONITORS"])))
MonitorState.objects.bulk_create(
    MonitorState(monitor=monitor, status="up", status_since=now, fresh=False, last_ping_at=now, last_checked_at=now,
                 claim=1, applied_claim=1, next_due_at=now + timedelta(seconds=3660)) for monitor in made)
with connection.cursor() as cursor:
    cursor.execute("VACUUM ANALYZE")
"""


@dataclass
class Tally:
    acknowledged: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    taken: list[float] = field(default_factory=list)


class Connection:
    """A client that sends a ping, reads its response, and sends the next."""

    def __init__(self, where: tuple[str, int], *, fresh: bool) -> None:
        self._where, self._fresh = where, fresh
        self.socket = self._open()
        self.name, self._sent_at, self._buffer = "", 0.0, b""

    def _open(self) -> socket.socket:
        opened = socket.create_connection(self._where, timeout=10)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def send(self, name: str) -> None:
        self.name, self._sent_at, self._buffer = name, time.perf_counter(), b""
        ending = b"Connection: close\r\n\r\n" if self._fresh else b"\r\n"
        self.socket.sendall(
            b"POST /v1/heartbeats/%b/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/8.0\r\n"
            b"Accept: */*\r\nContent-Length: 0\r\n%b" % (name.encode(), ending)
        )

    def is_answered(self, tally: Tally) -> bool:
        """Read available bytes. Return whether the response is complete; if so, count it."""
        part = self.socket.recv(65536)
        self._buffer += part
        head, ended, body = self._buffer.partition(b"\r\n\r\n")
        if part and not (ended and len(body) >= _length(head)):
            return False
        if head.startswith(b"HTTP/1.1 200 ") and json.loads(body) == {"ok": True}:
            tally.acknowledged[self.name] += 1
            tally.taken.append(time.perf_counter() - self._sent_at)
        else:
            tally.wrong[self._buffer[:200].decode(errors="replace") or "closed without an answer"] += 1
        return True

    def renew(self) -> None:
        self.socket.close()
        self.socket = self._open()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def drive(address: str, names: list[str], tally: Tally, *, connections: int, seconds: float, fresh: bool) -> None:
    """Ping for `seconds`, and until the last ping is answered."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    chosen = random.Random(5)
    deadline = time.perf_counter() + seconds
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            client = Connection((parts.hostname, parts.port), fresh=fresh)
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send(chosen.choice(names))
        while selector.get_map():
            ready = selector.select(timeout=10)
            if not ready:
                raise SystemExit("no ping was answered for 10 s")
            for key, _ in ready:
                client = key.data
                if not client.is_answered(tally):
                    continue
                if time.perf_counter() >= deadline:
                    selector.unregister(client.socket)
                    client.socket.close()
                    continue
                if fresh:
                    selector.unregister(client.socket)
                    client.renew()
                    selector.register(client.socket, selectors.EVENT_READ, client)
                client.send(chosen.choice(names))


def lost(served: Serving, acknowledged: Counter[str]) -> int:
    """Kill PostgreSQL. Return the number of acknowledged pings that are missing or later than the stored state."""
    before = served.server_pid("postgres")
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + RECOVERY_SEC
    while True:
        try:
            if served.server_pid("postgres") != before:
                with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
                    found = connection.execute(
                        "SELECT monitor.public_id, state.claim - 1, state.applied_claim - 1, count(result.claim)"
                        "  FROM monitors_monitor AS monitor JOIN monitors_monitorstate AS state ON monitor_id = id"
                        "  LEFT JOIN checks_checkresult AS result ON result.monitor_id = monitor.id"
                        " GROUP BY monitor.public_id, state.claim, state.applied_claim"
                    ).fetchall()
                break
        except psycopg.OperationalError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"PostgreSQL was not back within {RECOVERY_SEC} s")
        time.sleep(0.1)
    stored = {name: min(counts) for name, *counts in found}
    return sum(max(0, count - stored.get(name, 0)) for name, count in acknowledged.items())


def durability(served: Serving) -> dict[str, str]:
    names = ["fsync", "synchronous_commit", "full_page_writes"]
    with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
        shown = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [names]).fetchall()
    return dict(shown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--fresh", action="store_true", help="a new connection for each ping")
    parser.add_argument("--web", help="another command than the Procfile's; it finds PORT in its environment")
    options = parser.parse_args()
    monitors, seconds = (os.environ.get("MONITORS") or "5000", float(os.environ.get("SECONDS_TO_RUN") or 10))
    variables = {"MONITORS": monitors, "THROTTLE_SCALE": "1e6"}
    with serving(variables, command=options.web, setup=FILL) as served:
        settings = durability(served)
        with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
            names = [row[0] for row in connection.execute("SELECT public_id FROM monitors_monitor")]
        warming, tally = Tally(), Tally()
        load = {"connections": options.connections, "fresh": options.fresh}
        drive(served.address, names, warming, seconds=WARM_UP_SEC, **load)
        cpu, start = served.cpu_seconds(), time.perf_counter()
        drive(served.address, names, tally, seconds=seconds, **load)
        elapsed = time.perf_counter() - start
        spent = {name: total - cpu[name] for name, total in served.cpu_seconds().items()}
        pings = tally.acknowledged.total()
        missing = lost(served, warming.acknowledged + tally.acknowledged)
    for answer, count in (warming.wrong + tally.wrong).most_common(3):
        print(f"{count} times: {answer!r}")
    durable = set(settings.values()) == {"on"}
    found = {
        "pings_per_second": round(pings / elapsed, 1),
        "cpu_ms_per_ping": round(sum(spent.values()) / max(pings, 1) * 1000, 3),
        **{f"{name}_cpu_ms": round(used / max(pings, 1) * 1000, 3) for name, used in spent.items()},
        "median_ms": round(statistics.median(tally.taken) * 1000, 2),
        "p99_ms": round(statistics.quantiles(tally.taken, n=100)[98] * 1000, 2),
        "pings": pings,
        "wrong": (warming.wrong + tally.wrong).total(),
        "lost": missing,
        "durable": durable,
    }
    found["goal_met"] = found["pings_per_second"] >= GOAL
    print(json.dumps(found))
    return 0 if found["goal_met"] and durable and not missing and not found["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
