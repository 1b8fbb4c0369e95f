"""Stop the broker and the database in every order under all processes. Nothing restarts a process that ends.

    python -m tests.faults.outages [--rounds ROUNDS] [--seconds SECONDS] [--servers valkey postgres history] [--names]

After each round, a ping must be answered, every monitor checked and an alert delivered. The last line printed is one
JSON object: rounds, processes that ended, and the most lines and bytes that a process logged during a round.

With --names, which needs root, the name of the broker stops resolving instead, and the broker is restarted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import cycle, islice, permutations, product
from pathlib import Path
from typing import TYPE_CHECKING

import django
import redis

from devserver.data_folder import DataFolder, load_or_create_secrets
from devserver.server_supervisor import ServerSupervisor
from devserver.session import ensure_database
from tests.alerts.receiver import Receiver
from tests.faults.system import COMMON, kill_with_children, migrate
from tests.processes.tree import Place, Tree
from tests.processes.up import copy_cluster, free_port
from tests.processes.waiting import until
from tests.site import Site

if TYPE_CHECKING:
    from devserver.server_process import Server

SERVERS = ("valkey", "postgres")
HISTORY = "history"
BROKER_NAME = "broker.invalid"
HOSTS = f"127.0.0.1 localhost {BROKER_NAME}\n"
PATIENCE_SEC = 90


@dataclass(frozen=True)
class Round:
    stopped: Sequence[str]
    started: Sequence[str]
    how: str

    def __str__(self) -> str:
        return f"{self.how} {', '.join(self.stopped)}; start {', '.join(self.started)}"


def all_rounds(servers: Sequence[str]) -> list[Round]:
    """Return every order of stopping and starting these servers, all and each alone. First comes what differs most."""
    groups = [servers, *([(name,) for name in servers] if len(servers) > 1 else [])]
    orders = [order for group in groups for order in product(permutations(group), repeat=2)]
    rounds = [Round(stopped, started, how) for stopped, started in orders for how in ("kill", "stop")]
    # A failover: the broker becomes a replica, and is the primary again at the end.
    return ([Round(("valkey",), ("valkey",), "demote")] if "valkey" in servers else []) + rounds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5, help="after each server that is stopped or started")
    parser.add_argument("--servers", nargs="+", choices=(*SERVERS, HISTORY), default=SERVERS)
    parser.add_argument("--names", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-outages-") as name, ExitStack() as stack:
        folder = Path(name)
        servers = stack.enter_context(_servers(folder))
        if HISTORY in given.servers:
            servers |= stack.enter_context(_history(folder / HISTORY))
        migrate(Place())
        django.setup()
        site = stack.enter_context(Site())
        receiver = stack.enter_context(Receiver())
        path = _make_monitors(site, receiver)
        hosts = folder / "hosts"
        place = _with_hosts(hosts) if given.names else Place()
        tree = stack.enter_context(Tree(os.environ, folder, counts={}, places=[place]))
        play = Play(servers, tree, site, receiver, path, given.seconds, hosts)
        leaving = threading.Event()
        stack.callback(leaving.set)
        threading.Thread(target=play.keep_pinging, args=(leaving,), daemon=True).start()
        possible = [Round(("valkey",), ("valkey",), "forget")] if given.names else all_rounds(given.servers)
        rounds = list(islice(cycle(possible), given.rounds))
        try:
            print(json.dumps(play.run(rounds)))  # noqa: T201
        finally:
            for member in play.tree.members:
                _note(f"--- {member}\n{play.tree.log(member).read_text(errors='replace')[-200000:]}")
            _note(str(play._events(0)))


def _with_hosts(hosts: Path) -> Place:
    """Return a place whose processes see `hosts` as /etc/hosts, and reach the broker by a name in it."""
    hosts.write_text(HOSTS)
    mount = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts))
    return Place(before=mount, variables={"REDIS_URL": os.environ["REDIS_URL"].replace("127.0.0.1", BROKER_NAME)})


@contextmanager
def _servers(folder: Path) -> Iterator[dict[str, Server]]:
    """Start servers that only the caller restarts, and put the settings of the tree into os.environ."""
    if cluster := os.environ.get("CLUSTER"):
        copy_cluster(Path(cluster), folder)
    data = DataFolder.prepare(folder)
    supervisor = ServerSupervisor(data, {}, {})
    try:
        supervisor.start()
        found = ensure_database(data, "pulsekeeper")
        port = free_port()
        os.environ.update(
            load_or_create_secrets(folder),
            DATA_DIR=str(folder),
            DATABASE_URL=found.database_url,
            REDIS_URL=found.redis_url,
            ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
            PORT=str(port),
            BASE_URL=f"http://127.0.0.1:{port}",
            **COMMON,
        )
        yield {server.name: server for server in supervisor.servers}
    finally:
        supervisor.stop()


@contextmanager
def _history(folder: Path) -> Iterator[dict[str, Server]]:
    """Start another PostgreSQL for the history, with a Valkey that nothing uses."""
    data = DataFolder.prepare(folder)
    supervisor = ServerSupervisor(data, {}, {})
    try:
        supervisor.start()
        os.environ["HISTORY_DATABASE_URL"] = ensure_database(data, "pulsekeeper").database_url
        yield {HISTORY: supervisor.servers[0]}
    finally:
        supervisor.stop()


def _make_monitors(site: Site, receiver: Receiver) -> str:
    """Make a monitor of the site, a heartbeat and a webhook. Return the path of the heartbeat's pings."""
    from accounts.models import Plan
    from accounts.services import create_account
    from alerts.models import AlertChannel
    from alerts.services import create_channel
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.create(name="faults", min_interval_sec=1, monitor_limit=2)
    caller = Caller(create_account(email="a@example.com", password="a fine long password", plan="faults"))
    polled = {"type": "http", "name": "site", "url": site.url("/ok"), "interval_sec": 1, "fail_threshold": 1}
    create_monitor(caller, polled, now=utc_now())
    heartbeat = create_monitor(caller, {"type": "heartbeat", "name": "job", "interval_sec": 3600}, now=utc_now())
    AlertChannel.objects.all().delete()
    create_channel(caller, {"kind": "webhook", "name": "hook", "url": f"{receiver.url}/hook"}, now=utc_now())
    return f"/v1/heartbeats/{heartbeat.public_id}/ping"


@dataclass
class Play:
    servers: dict[str, Server]
    tree: Tree
    site: Site
    receiver: Receiver
    path: str
    seconds: float
    hosts: Path

    def run(self, rounds: Sequence[Round]) -> dict[str, object]:
        self._works()
        ended: list[str] = []
        lines = dict.fromkeys(self.tree.members, 0)
        size = dict.fromkeys(self.tree.members, 0)
        for number, this in enumerate(rounds, 1):
            before = {name: len(self._log(name)) for name in lines}
            start = time.monotonic()
            self._play(this)
            played = time.monotonic() - start
            if found := self.tree.ended():
                ended += [f"{name} in round {number}: {this}" for name in found]
                self.tree.start()
            self._works()
            _note(f"{number}: {this}; {played:.1f} s, works {time.monotonic() - start - played:.1f} s later")
            for name, count in before.items():
                logged = self._log(name)[count:]
                lines[name] = max(lines[name], len(logged))
                size[name] = max(size[name], sum(map(len, logged)))
        return {"rounds": len(rounds), "ended": ended, "lines": lines, "bytes": size}

    def keep_pinging(self, leaving: threading.Event) -> None:
        while not leaving.wait(1):
            self._ping()

    def _play(self, this: Round) -> None:
        for name in this.stopped:
            self._stop(self.servers[name], this.how)
            time.sleep(self.seconds)
        for name in this.started:
            self._start(self.servers[name], this.how)
            if name != this.started[-1]:
                time.sleep(self.seconds)

    def _stop(self, server: Server, how: str) -> None:
        if how == "demote":
            with redis.Redis.from_url(os.environ["REDIS_URL"]) as broker:
                broker.replicaof("127.0.0.1", "1")
            return
        if how == "forget":
            self.hosts.write_text("127.0.0.1 localhost\n")
        pid = server.state()["pid"]
        if how == "kill":
            assert isinstance(pid, int)
            kill_with_children(pid)
        server.stop()
        if how == "forget":
            server.start()

    def _start(self, server: Server, how: str) -> None:
        if how == "demote":
            with redis.Redis.from_url(os.environ["REDIS_URL"]) as broker:
                broker.replicaof("NO", "ONE")
        elif how == "forget":
            self.hosts.write_text(HOSTS)
        else:
            server.start()

    def _works(self) -> None:
        """Wait until a ping is answered, the monitor is checked, and the alerts of an outage are delivered."""
        from core.clock import utc_now

        until(self._ping, PATIENCE_SEC, "a ping is answered")
        calls = len(self.receiver.calls)
        until(partial(self._is_up, utc_now()), PATIENCE_SEC, "the monitor is up")
        self.site.stop()
        until(lambda: "down" in self._events(calls), PATIENCE_SEC, "the alert of an outage arrives")
        self.site.start()
        until(lambda: "recovered" in self._events(calls), PATIENCE_SEC, "the alert of its end arrives")

    def _is_up(self, since: datetime) -> bool:
        """Return whether a check after `since` succeeded."""
        from django.db import DatabaseError, connection

        from monitors.models import MonitorState

        states = MonitorState.objects.filter(monitor__type="http", status="up", last_checked_at__gt=since)
        try:
            return states.exists()
        except DatabaseError:  # this connection was cut
            return False
        finally:
            connection.close()

    def _events(self, since: int) -> list[str]:
        """Return the events that were delivered, alone or in groups."""
        bodies = [call.json for call in self.receiver.calls[since:]]
        return [item["event"] for body in bodies for item in body.get("items", [body])]

    def _ping(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=10)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", self.path)
            return connection.getresponse().status == 200
        connection.close()
        return False

    def _log(self, name: str) -> list[bytes]:
        """Return its lines, without those of requests."""
        return [line for line in self.tree.log(name).read_bytes().splitlines() if b" config.access: " not in line]


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
