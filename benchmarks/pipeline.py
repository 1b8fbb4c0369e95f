"""Measure what one machine can carry: monitors checked on time, and the cost of a check.

    python benchmarks/pipeline.py       (or `make bench`; MONITORS, HEARTBEATS, WORKERS and SECONDS_TO_RUN set the size)
    STEPS=0 python benchmarks/pipeline.py       (without the search for the highest rate)
    MIX=http:70,port:10,ping:10,dns:10 python benchmarks/pipeline.py    (types of the monitors; default: http)

The processes of the Procfile on private servers in a temporary folder, a target that answers at once, and monitors
at 60 s spread over it. First 60,000 of them (1,000 checks/s), whose recorded latency is compared with that of a
probe on the idle machine; then all, with pings and test runs; then more and more while their lag stays under 5 s, or
fewer and fewer until it does. Everything shares the cores of this machine, including the target and the callers;
`cpu_ms_per_check` excludes these two, and `others_cpu` says how many cores they and other processes used.
`checks_per_second` is the highest rate with that lag. All other figures are for MONITORS monitors; their rate cannot
exceed `checks_per_second_due`.

`ratio_to_bare_http` is the CPU of a check of the 60,000 monitors, without pings and test runs, divided by that in
benchmarks/load/bare.py, which runs before and after. `ratio_to_bare_https` is the same for 30,000 https monitors. One
is null if its checks were not on time: the CPU of those that are not stored yet would count for the others.

The last line is one JSON object. Exits 1 if a check, a ping or a test run was wrong.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from benchmarks.load.bare import bare_cpu_ms
from benchmarks.load.callers import Pingers, Testers, post
from benchmarks.load.target import Target, running_target
from benchmarks.load.usage import busy_seconds, cpu_seconds, memory_mib
from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers, server_pids
from tests.processes.tree import Tree
from tests.processes.up import free_port

if TYPE_CHECKING:
    from benchmarks.load.fill import Fleet
    from benchmarks.load.measure import Stretch

ROOT = Path(__file__).resolve().parent.parent
MONITORS = int(os.environ.get("MONITORS") or 200_000)
HEARTBEATS = int(os.environ.get("HEARTBEATS") or 5_000)
WORKERS = int(os.environ.get("WORKERS") or 1)
SECONDS_TO_RUN = float(os.environ.get("SECONDS_TO_RUN") or 60)
MIX = {
    name: int(percent) / 100
    for name, _, percent in (part.partition(":") for part in (os.environ.get("MIX") or "http:100").split(","))
}
CALM_MONITORS, TLS_MONITORS = 60_000, 30_000
BARE_CHECKS = {"http": 10_000, "https": 2_000}
START_SECONDS, SETTLE_SECONDS = 60, 20
MOST_LAG_S = 5.0
LEAST_DONE = 0.97  # a period does not contain the complete checks at its edges
GROWTH, SHRINKING, MOST_STEPS = 0.1, 0.2, int(os.environ.get("STEPS") or 12)
SERVERS = ("postgres", "valkey")
GOALS = {
    "checks_per_second": (3_500, "at least"),
    "cpu_ms_per_check": (0.45, "at most"),
    "bytes_per_check": (120, "at most"),
    "rss_mib": (600, "at most"),
    "interactive_p99_ms": (300, "at most"),
    "latency_bias_ms": (5, "at most"),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def servers(folder: Path, **more: str) -> Iterator[None]:
    """Start private servers, with their addresses and all other settings in os.environ."""
    with embedded_servers(folder) as found:
        os.environ.update(
            load_or_create_secrets(folder),
            DATA_DIR=str(folder),
            DATABASE_URL=found.database_url,
            REDIS_URL=found.redis_url,
            ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
            THROTTLE_SCALE="0",
            PORT=str(free_port()),
            DJANGO_SETTINGS_MODULE="config.settings",
            **more,
        )
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        django.setup()
        yield


def quiet_latency_ms(target: Target) -> float:
    """Return the median of sequential probes on an idle machine."""
    from checks.probes.http.spec import HttpSpec
    from monitors.checking.runner import shared_engine

    spec = HttpSpec(url=f"http://{target.addresses[0]}:{target.port}/")
    found = [shared_engine().check(spec).latency_ms for _ in range(200)]
    return statistics.median(latency for latency in found if latency is not None)


def servers_of(folder: Path) -> dict[str, list[int]]:
    pids = server_pids(folder) or {}
    return {name: [pid] for name, pid in pids.items() if isinstance(pid, int)}


class Machine:
    """The process tree, and the resources that it used."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self._tree = tree
        self._folder = folder
        self.peak: dict[str, float] = {}
        self.others_cpu = 0.0  # cores, in the last run

    def roots(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for member in self._tree.members.values():
            assert member.pid is not None
            found.setdefault(member.kind, []).append(member.pid)
        return found | servers_of(self._folder)

    def run(self, seconds: float) -> tuple[datetime, datetime, dict[str, float]]:
        """Run for `seconds`. Return start, end and CPU seconds by kind."""
        from core.clock import utc_now

        roots = self.roots()
        start, before, busy = utc_now(), cpu_seconds(roots), busy_seconds()
        self._watch(seconds, roots)
        end, after, busy = utc_now(), cpu_seconds(roots), busy_seconds() - busy
        used = {kind: after[kind] - before[kind] for kind in roots}
        self.others_cpu = (busy - sum(used.values())) / (end - start).total_seconds()
        return start, end, used

    def start(self) -> None:
        """Wait until the first check is stored."""
        from benchmarks.load.measure import any_check

        deadline = time.monotonic() + START_SECONDS
        while not any_check():
            if time.monotonic() > deadline:
                raise SystemExit(f"no check was made within {START_SECONDS} s")
            self._watch(0.2, self.roots())

    def _watch(self, seconds: float, roots: Mapping[str, list[int]]) -> None:
        deadline = time.monotonic() + seconds
        nothing = threading.Event()
        while (left := deadline - time.monotonic()) > 0:
            nothing.wait(min(5.0, left))
            if ended := self._tree.ended():
                raise SystemExit(f"{', '.join(ended)} ended: {self._tree.log(ended[0]).read_text()[-3000:]}")
            for kind, size in memory_mib(roots, shared=True).items():
                self.peak[kind] = max(size, self.peak.get(kind, 0.0))


def measured(machine: Machine, fleet: Fleet, *, seconds: float) -> tuple[Stretch, dict[str, float]]:
    from benchmarks.load.measure import overdue_sec, stretch

    start, end, cpu = machine.run(seconds)
    overdue = overdue_sec()
    found = stretch(start, end, monitors=fleet.monitors)
    used = ", ".join(f"{kind} {seconds_used / seconds:.0%}" for kind, seconds_used in cpu.items())
    say(
        f"{fleet.monitors} monitors: {found.checks_per_second:.0f} checks/s ({found.done:.1%} of the slots), "
        f"lag p50 {found.lag_p50_s:.2f} s, p99 {found.lag_p99_s:.2f} s, longest overdue {overdue:.1f} s, "
        f"latency p50 {found.latency_p50_ms:g} ms, {found.failed} failed, "
        f"CPU {used}, others {machine.others_cpu:.0%}"
    )
    return found, cpu


def most(machine: Machine, fleet: Fleet, first: Stretch) -> Stretch | None:
    """Find the highest rate at which checks are on time, by adding or removing monitors step by step."""
    growing = in_time(first)
    best = first if growing else None
    for _ in range(MOST_STEPS):
        if growing:
            fleet.add_monitors(int(fleet.monitors * GROWTH))
        else:
            fleet.drop_monitors(int(fleet.monitors * SHRINKING))
        machine.run(SETTLE_SECONDS)
        found, _ = measured(machine, fleet, seconds=max(SECONDS_TO_RUN / 2, 20))
        if in_time(found):
            best = found
        if in_time(found) is not growing:
            break
    return best


def in_time(found: Stretch) -> bool:
    return found.lag_p99_s < MOST_LAG_S and found.done > LEAST_DONE


def run(folder: Path) -> tuple[dict[str, Any], list[str]]:
    wrong: list[str] = []
    with running_target(folder) as target, servers(folder, SSL_CERT_FILE=target.ca_file):
        from benchmarks.load.fill import EMAIL, INTERVAL_SEC, PASSWORD, Fleet
        from benchmarks.load.measure import bytes_per_check

        quiet = quiet_latency_ms(target)
        say(f"target: {target.name}; a quiet probe takes {quiet:g} ms")
        bare: dict[str, list[float]] = {scheme: [] for scheme in BARE_CHECKS}

        def measure_bare() -> None:
            for scheme, checks in BARE_CHECKS.items():
                bare[scheme].append(bare_cpu_ms(target, servers_of(folder), scheme, checks=checks))

        measure_bare()
        fleet = Fleet(target, MIX)
        heartbeats = fleet.add_heartbeats(HEARTBEATS)
        calm_monitors = min(CALM_MONITORS, MONITORS)
        fleet.add_monitors(calm_monitors)
        port = int(os.environ["PORT"])
        with Tree(os.environ, folder, counts={"worker": WORKERS}) as tree:
            machine = Machine(tree, folder)
            machine.start()
            machine.run(SETTLE_SECONDS)
            calm, calm_cpu = measured(machine, fleet, seconds=SECONDS_TO_RUN / 2)
            fleet.add_monitors(MONITORS - calm_monitors)
            status, session = post(port, "/v1/sessions", {"email": EMAIL, "password": PASSWORD})
            if status != 201:
                raise SystemExit(f"cannot sign in: {status} {session}")
            address = f"http://{target.addresses[0]}:{target.port}/"
            with Pingers(port, heartbeats, interval_sec=INTERVAL_SEC) as pingers:
                machine.run(SETTLE_SECONDS)
                with Testers(port, session["token"], address) as testers:
                    pings = pingers.pings
                    full, cpu = measured(machine, fleet, seconds=SECONDS_TO_RUN)
                    pings = pingers.pings - pings
                    others = machine.others_cpu
                size = bytes_per_check()
                peak = dict(machine.peak)
                proportional = memory_mib(machine.roots(), shared=False)
                best = most(machine, fleet, full)
            fleet.drop_monitors(fleet.monitors)
            fleet.add_over_tls(min(TLS_MONITORS, MONITORS))
            machine.run(SETTLE_SECONDS)
            over_tls, tls_cpu = measured(machine, fleet, seconds=SECONDS_TO_RUN / 2)
        measure_bare()
        wrong += pingers.errors + testers.errors
        if failed := full.failed + calm.failed + over_tls.failed:
            wrong.append(f"{failed} checks of a target that is up failed")
    ratios = {}
    for scheme, found_of, used in (("http", calm, calm_cpu), ("https", over_tls, tls_cpu)):
        each, least = 1000 * sum(used.values()) / found_of.checks, statistics.mean(bare[scheme])
        ratios[f"ratio_to_bare_{scheme}"] = round(each / least, 2) if found_of.done > LEAST_DONE else None
        by_kind = ", ".join(f"{kind} {1000 * seconds / found_of.checks:.4f}" for kind, seconds in used.items())
        say(f"{scheme}: {each:.4f} ms of CPU for each check ({by_kind}), bare {bare[scheme]}")
    ours = [kind for kind in peak if kind not in SERVERS]
    found = {
        "checks_per_second": None if best is None else round(best.checks_per_second),
        "checks_per_second_due": round(full.checks_per_second),
        "lag_p50_s": round(full.lag_p50_s, 3),
        "lag_p99_s": round(full.lag_p99_s, 3),
        "cpu_ms_per_check": round(1000 * sum(cpu.values()) / full.checks, 4),
        "bytes_per_check": round(size, 1),
        "rss_mib": round(sum(peak[kind] for kind in ours), 1),
        "interactive_p99_ms": round(percentile(testers.taken_ms, 99) - quiet, 1),
        "latency_bias_ms": round(calm.latency_p50_ms - quiet, 2),
        **ratios,
        "most_lag_p99_s": None if best is None else round(best.lag_p99_s, 3),
        "slots_checked": round(full.done, 4),
        "cpu_ms_per_check_by_kind": {kind: round(1000 * used / full.checks, 4) for kind, used in cpu.items()},
        "others_cpu": round(others, 2),
        "rss_mib_by_kind": {kind: round(size, 1) for kind, size in peak.items()},
        "pss_mib": round(sum(proportional[kind] for kind in ours), 1),
        "interactive_p50_ms": round(statistics.median(testers.taken_ms) - quiet, 1),
        "pings_per_second": round(pings / SECONDS_TO_RUN, 1),
        "monitors": MONITORS,
        "heartbeats": HEARTBEATS,
        "workers": WORKERS,
        "target": target.name,
        "mix": MIX,
    }
    return found, wrong


def missed_goals(found: Mapping[str, Any]) -> list[str]:
    """Return the missed goals of the project. A busy machine may miss them, so they are only reported."""
    missed = []
    for name, (goal, side) in GOALS.items():
        reached = found[name] or 0
        if reached < goal if side == "at least" else reached > goal:
            missed.append(f"{name}: {reached}, {side} {goal}")
    return missed


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> int:
    # On SIGTERM, exit through all `with` blocks, so that everything is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as folder:
        found, wrong = run(Path(folder))
    for line in wrong[:20]:
        say(line)
    print(json.dumps(found | {"missed_goals": missed_goals(found), "errors": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
