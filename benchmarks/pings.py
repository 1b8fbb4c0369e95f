"""Measure the signals of heartbeats' jobs: how many a second, and the cost of one.

    python benchmarks/pings.py [--connections N] [--fresh] [--fails] [--against FOLDER] [--web COMMAND]

Over loopback http with the web server of the Procfile, on private servers whose PostgreSQL is durable. MONITORS
(5,000) heartbeats that are up are pinged at random for SECONDS_TO_RUN (10) over N connections, which are kept alive,
or with --fresh opened for each ping. With --fails the jobs report failures with a body of 10 KB. Throttles are active,
with a limit that is never reached. Then web and PostgreSQL are killed (-9) under load, and every acknowledged signal is
looked up.

A bare application (`benchmarks.bare_pings`), which only runs the same statement, is loaded in turns with ours, on
separate servers, in ROUNDS (5) rounds. `ratio_to_bare` is our CPU for a ping (web, PostgreSQL and Valkey)
divided by that of a bare one, `ratio_to_bare_web` that of the web process alone: medians of the rounds. A heartbeat
that is pinged twice at once takes a second statement; the bare application records only one of both pings.

--against also runs another version, a checkout in FOLDER, on separate servers. `pings_ratio` and `cpu_ratio` are the
medians of this version's figures divided by the other's.

The last line is one JSON object; CPU is that of web, PostgreSQL and Valkey. Exits 1 if a signal was lost or refused, or
the goal is missed.
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
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import Serving, serving

GOAL, FAILS_GOAL = 2_500, 1_000
BARE_GOAL = 1.3
LEAST_RATIO = 0.95
ROUNDS = 5
BODY = (b"pg_dump: error: connection to server failed\n" * 300)[:10_000]
CRASH_SEC = 1.0
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

BARE = """
import json; import django; django.setup()
from monitors import types
from monitors.cron import TZDATA_VERSION
from monitors.heartbeats.services import STILL_UP
values = {"types": [*types.waiting()], "tzdata": TZDATA_VERSION}
print(json.dumps({"BARE_STATEMENT": STILL_UP, "BARE_VALUES": json.dumps(values)}))
"""


@dataclass
class Tally:
    acknowledged: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    taken: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Load:
    """How signals are sent: over how many connections, each opened for one signal or kept, with which path and body."""

    connections: int
    fresh: bool = False
    path: str = "ping"
    body: bytes = b""


class Connection:
    """A client that sends a signal, reads its response, and sends the next."""

    def __init__(self, where: tuple[str, int], load: Load) -> None:
        self._where, self._load = where, load
        self.socket = self._open()
        self.name, self._sent_at, self._buffer = "", 0.0, b""

    def _open(self) -> socket.socket:
        opened = socket.create_connection(self._where, timeout=10)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def send(self, name: str) -> None:
        self.name, self._sent_at, self._buffer = name, time.perf_counter(), b""
        ending, body = b"Connection: close\r\n\r\n" if self._load.fresh else b"\r\n", self._load.body
        self.socket.sendall(
            b"POST /v1/heartbeats/%b/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/8.0\r\n"
            b"Accept: */*\r\nContent-Length: %d\r\n%b%b"
            % (name.encode(), self._load.path.encode(), len(body), ending, body)
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


def drive(address: str, names: list[str], tally: Tally, load: Load, *, seconds: float) -> None:
    """Signal for `seconds`, and until the last signal is answered."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    chosen = random.Random(5)
    deadline = time.perf_counter() + seconds
    with selectors.DefaultSelector() as selector:
        for _ in range(load.connections):
            client = Connection((parts.hostname, parts.port), load)
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send(chosen.choice(names))
        while selector.get_map():
            ready = selector.select(timeout=10)
            if not ready:
                raise SystemExit("nothing was answered for 10 s")
            for key, _ in ready:
                client = key.data
                if not client.is_answered(tally):
                    continue
                if time.perf_counter() >= deadline:
                    selector.unregister(client.socket)
                    client.socket.close()
                    continue
                if load.fresh:
                    selector.unregister(client.socket)
                    client.renew()
                    selector.register(client.socket, selectors.EVENT_READ, client)
                client.send(chosen.choice(names))


def crash(served: Serving, names: list[str], tally: Tally, load: Load) -> None:
    """Kill the web server and PostgreSQL under load. What is not answered does not count."""
    killer = threading.Timer(CRASH_SEC, _kill, (served,))
    killer.start()
    interrupted = Tally()
    with suppress(OSError):
        drive(served.address, names, interrupted, load, seconds=60)
    killer.join()
    tally.acknowledged += interrupted.acknowledged


def _kill(served: Serving) -> None:
    os.killpg(served.web_pid, signal.SIGKILL)
    os.kill(served.server_pid("postgres"), signal.SIGKILL)


def lost(served: Serving, before: int, acknowledged: Counter[str]) -> int:
    """Return the number of acknowledged signals that have no row or no result. `before`: PostgreSQL's old pid."""
    deadline = time.monotonic() + RECOVERY_SEC
    while True:
        try:
            if served.server_pid("postgres") != before:
                with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
                    found = connection.execute(_STORED).fetchall()
                break
        except psycopg.OperationalError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"PostgreSQL was not back within {RECOVERY_SEC} s")
        time.sleep(0.1)
    stored = {name: min(counts) for name, *counts in found}
    return sum(max(0, count - stored.get(name, 0)) for name, count in acknowledged.items())


_STORED = """
    SELECT public_id, state.claim - 1, state.applied_claim - 1,
           (SELECT count(*) FROM checks_checkresult AS result WHERE result.monitor_id = id),
           (SELECT count(*) FROM monitors_ping AS ping WHERE ping.monitor_id = monitor.id)
      FROM monitors_monitor AS monitor JOIN monitors_monitorstate AS state ON state.monitor_id = id
"""


def durability(served: Serving) -> dict[str, str]:
    names = ["fsync", "synchronous_commit", "full_page_writes"]
    with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
        shown = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [names]).fetchall()
    return dict(shown)


@dataclass
class Version:
    """A running version, and the figures of its turns."""

    served: Serving
    names: list[str]
    tally: Tally = field(default_factory=Tally)
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    web_costs: list[float] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def turn(self, load: Load, *, seconds: float) -> None:
        cpu, start, earlier = self.served.cpu_seconds(), time.perf_counter(), self.tally.acknowledged.total()
        drive(self.served.address, self.names, self.tally, load, seconds=seconds)
        elapsed, count = time.perf_counter() - start, self.tally.acknowledged.total() - earlier
        spent = {name: total - cpu[name] for name, total in self.served.cpu_seconds().items()}
        self.seconds += elapsed
        self.spent.update(spent)
        self.rates.append(count / elapsed)
        self.costs.append(sum(spent.values()) / max(count, 1))
        self.web_costs.append(spent["web"] / max(count, 1))

    def cpu_ms(self) -> dict[str, float]:
        """Return the CPU of a ping in ms by process."""
        pings = max(self.tally.acknowledged.total(), 1)
        return {f"{name}_cpu_ms": round(used / pings * 1000, 3) for name, used in self.spent.items()}


def _version(served: Serving) -> Version:
    with psycopg.connect(served.environment["DATABASE_URL"]) as connection:
        return Version(served, [row[0] for row in connection.execute("SELECT public_id FROM monitors_monitor")])


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(one / other for one, other in zip(ours, theirs, strict=True)), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--fresh", action="store_true", help="a new connection for each signal")
    parser.add_argument("--fails", action="store_true", help="failures with a body of 10 KB instead of pings")
    parser.add_argument("--against", type=Path, help="the folder of another version, to compare with")
    parser.add_argument("--web", help="another command than the Procfile's; it finds PORT in its environment")
    options = parser.parse_args()
    monitors, seconds = (os.environ.get("MONITORS") or "5000", float(os.environ.get("SECONDS_TO_RUN") or 10))
    variables = {"MONITORS": monitors, "THROTTLE_SCALE": "1e6"}
    path, body = ("ping/fail", BODY) if options.fails else ("ping", b"")
    load = Load(options.connections, options.fresh, path, body)
    with ExitStack() as stack:
        ours = _version(stack.enter_context(serving(variables, command=options.web, setup=FILL)))
        others: dict[str, Version] = {}
        if not options.fails:
            given = variables | json.loads(ours.served.python("-c", BARE))
            command = ours.served.web_command.replace("config.rsgi", "benchmarks.bare_pings")
            others["bare"] = _version(stack.enter_context(serving(given, command=command, setup=FILL)))
        if options.against is not None:
            others["against"] = _version(stack.enter_context(serving(variables, setup=FILL, root=options.against)))
        versions = [ours, *others.values()]
        durable = set(durability(ours.served).values()) == {"on"}
        warming = Tally()
        for version in versions:
            warmed = warming if version is ours else Tally()
            drive(version.served.address, version.names, warmed, load, seconds=WARM_UP_SEC)
        rounds = ROUNDS if others else 1
        for number in range(rounds):
            for version in versions if number % 2 == 0 else reversed(versions):
                version.turn(load, seconds=seconds / rounds)
        acknowledged = warming.acknowledged + ours.tally.acknowledged
        crashed, before = Tally(), ours.served.server_pid("postgres")
        crash(ours.served, ours.names, crashed, load)
        missing = lost(ours.served, before, acknowledged + crashed.acknowledged)
    tally, pings = ours.tally, ours.tally.acknowledged.total()
    wrong = sum((version.tally.wrong for version in versions), warming.wrong)
    for answer, count in wrong.most_common(3):
        print(f"{count} times: {answer!r}")
    found: dict[str, Any] = {
        "pings_per_second": round(pings / ours.seconds, 1),
        "cpu_ms_per_ping": round(ours.spent.total() / max(pings, 1) * 1000, 3),
        **ours.cpu_ms(),
        "median_ms": round(statistics.median(tally.taken) * 1000, 2),
        "p99_ms": round(statistics.quantiles(tally.taken, n=100)[98] * 1000, 2),
        "pings": pings,
        "wrong": wrong.total(),
        "lost": missing,
        "durable": durable,
    }
    found["goal_met"] = found["pings_per_second"] >= (FAILS_GOAL if options.fails else GOAL)
    if bare := others.get("bare"):
        found["ratio_to_bare"] = _ratio(ours.costs, bare.costs)
        found["goal_met"] = found["goal_met"] and found["ratio_to_bare"] <= BARE_GOAL
        found["ratio_to_bare_web"] = _ratio(ours.web_costs, bare.web_costs)
        found["bare"] = {"pings_per_second": round(bare.tally.acknowledged.total() / bare.seconds, 1), **bare.cpu_ms()}
    if against := others.get("against"):
        found["pings_ratio"] = _ratio(ours.rates, against.rates)
        found["cpu_ratio"] = _ratio(ours.costs, against.costs)
        found["web_cpu_ratio"] = _ratio(ours.web_costs, against.web_costs)
        found["against"] = against.cpu_ms()
        found["goal_met"] = found["goal_met"] and found["pings_ratio"] >= LEAST_RATIO
    print(json.dumps(found))
    return 0 if found["goal_met"] and durable and not missing and not found["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
