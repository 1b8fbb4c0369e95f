"""Measure the memory of each process of the Procfile at work.

    python benchmarks/memory.py [--monitors 20000] [--heartbeats 1000] [--read 2000] [--seconds 60]

The processes of the Procfile on private servers in a temporary folder, and monitors at 60 s whose target answers at
once. Heartbeats are pinged, drafts are tested, and an account with `--read` of the monitors reads its lists and metrics
all the time. Prints for each process, as MiB:
`pss` (its part of what it shares with others), `rss` (all of it) and `peak_rss`, the largest so far. PostgreSQL and
Valkey do not count. Several processes of one kind are a supervisor and its child, the larger one first.

The last line is one JSON object. Exits 1 if a process has more than PROCESS_GOAL, or all have more than ALL_GOAL.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from benchmarks.load.callers import Callers, Pingers, Testers, get, post
from benchmarks.load.target import running_target
from benchmarks.pipeline import SERVERS, Machine, say, servers
from benchmarks.serving import wait_until_answering
from tests.processes.tree import Tree

PROCESS_GOAL, ALL_GOAL = 100.0, 500.0
"""MiB of `pss` of a process, and of all."""
READER = "reader@example.com"
_FIELDS = {"pss": ("smaps_rollup", "Pss"), "rss": ("status", "VmRSS"), "peak_rss": ("status", "VmHWM")}
_READ = ("/v1/monitors?limit=100", "/v1/incidents", "/v1/metrics", "/openapi.json")


class Readers(Callers):
    """Read lists over the API."""

    def __init__(self, port: int, token: str, *, per_second: float = 2.0) -> None:
        super().__init__(1, per_second=per_second)
        self._port, self._token, self._count = port, token, 0

    def act(self, number: int) -> None:
        path = _READ[self._count % len(_READ)]
        self._count += 1
        if (status := get(self._port, path, token=self._token)) not in (200, 429):
            self.errors.append(f"{path}: {status}")


def sizes(pid: int) -> dict[str, float]:
    """Return the MiB of a process by the names of _FIELDS."""
    found = {}
    for name, (file, field) in _FIELDS.items():
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
        found[name] = round(next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024, 1)
    return found


def processes(machine: Machine) -> dict[str, dict[str, float]]:
    """Return the sizes of all processes by kind, without the servers. A second process of a kind has a number."""
    found: dict[str, dict[str, float]] = {}
    for kind, (pid, *_) in machine.roots().items():
        if kind in SERVERS:
            continue
        family = [process.pid for process in psutil.Process(pid).children(recursive=True)]
        measured = sorted((sizes(one) for one in (pid, *family)), key=lambda one: one["rss"], reverse=True)
        found |= {kind if not number else f"{kind}-{number}": one for number, one in enumerate(measured)}
    return found


def run(folder: Path, *, monitors: int, heartbeats: int, read: int, seconds: float) -> dict[str, Any]:
    with running_target(folder) as target, servers(folder):
        from accounts.services import create_account
        from benchmarks.load.fill import INTERVAL_SEC, PASSWORD, Fleet
        from monitors.models import Monitor

        fleet = Fleet(target, {"http": 1.0})
        names = fleet.add_heartbeats(heartbeats)
        fleet.add_monitors(monitors)
        Monitor.objects.filter(state=None).delete()  # the copied ones
        reader = create_account(email=READER, password=PASSWORD, plan="bench")
        Monitor.objects.filter(pk__in=Monitor.objects.filter(type="http")[:read]).update(owner=reader)
        port = int(os.environ["PORT"])
        with Tree(os.environ, folder, counts={}) as tree:
            machine = Machine(tree, folder)
            machine.start()
            wait_until_answering(f"http://127.0.0.1:{port}")
            idle = processes(machine)
            status, session = post(port, "/v1/sessions", {"email": READER, "password": PASSWORD})
            if status != 201:
                raise SystemExit(f"cannot sign in: {status} {session}")
            address, token = f"http://{target.addresses[0]}:{target.port}/", session["token"]
            callers = (
                Pingers(port, names, interval_sec=INTERVAL_SEC),
                Testers(port, token, address, per_second=1.0),
                Readers(port, token),
            )
            with callers[0], callers[1], callers[2]:
                machine.run(seconds)
            found = processes(machine)
        for line in [error for each in callers for error in each.errors][:10]:
            say(line)
    return {
        "monitors": fleet.monitors,
        "heartbeats": heartbeats,
        "read": read,
        "processes": found,
        "pss_at_start": {name: one["pss"] for name, one in idle.items()},
        "largest_pss_mib": max(one["pss"] for one in found.values()),
        "pss_mib": round(sum(one["pss"] for one in found.values()), 1),
        "rss_mib": round(sum(one["rss"] for one in found.values()), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=20_000)
    parser.add_argument("--heartbeats", type=int, default=1_000)
    parser.add_argument("--read", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    # On SIGTERM, exit through all `with` blocks, so that everything is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as folder:
        found = run(Path(folder), **vars(given))
    print(json.dumps(found))
    return 0 if found["largest_pss_mib"] <= PROCESS_GOAL and found["pss_mib"] <= ALL_GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
