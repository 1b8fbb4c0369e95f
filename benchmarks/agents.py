"""Measure what an agent costs the server, compared with a worker on the same machine, and what it needs itself.

    python benchmarks/agents.py     (MONITORS, CHECKS_DUE, IDLE_AGENTS, SECONDS_TO_RUN, IDLE_SECONDS and SETTLE_SECONDS)

The processes of the Procfile on private servers in a temporary folder, a target that answers at once, and MONITORS http
monitors. First one worker makes the checks, of which CHECKS_DUE a second are due, more than it can make. Then one
`pulsekeeper agent`, over http to the web process, serves the location that all monitors name: 1,000 checks a minute,
and then as many as it can, while half of CHECKS_DUE are due. At last IDLE_AGENTS agents wait for checks.

The rates are checks stored per second. The CPU of a check is that of all processes of the server: with the worker in
its run, without worker and agent in the other one. Target and agent share the cores of this machine. The last line is
one JSON object; `idle_agents_cpu` is what idle agents add to the CPU of the web process, in percent of a core. Exits 1
if a check failed, was stored twice, or was lost, or an idle agent was refused. Figures that miss their goals are only
listed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.load.target import running_target
from benchmarks.load.usage import cpu_seconds, memory_mib
from benchmarks.pipeline import ROOT, Machine, say, servers
from core.parent_death import die_with_parent
from tests.processes.tree import Tree

if TYPE_CHECKING:
    from locations.models import Location

MONITORS = int(os.environ.get("MONITORS") or 20_000)
CHECKS_DUE = int(os.environ.get("CHECKS_DUE") or 5_000)
IDLE_AGENTS = int(os.environ.get("IDLE_AGENTS") or 500)
SECONDS_TO_RUN = float(os.environ.get("SECONDS_TO_RUN") or 30)
IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS") or 70)  # credentials are looked up again after 60 s
SETTLE_SECONDS = float(os.environ.get("SETTLE_SECONDS") or 10)
CALM_PER_MINUTE = 1_000
LOCATION = "bench"
DAY_SEC = 86_400
DRAIN_SECONDS = 60
GOALS = {
    "rate_ratio": (0.5, "at least"),
    "server_cpu_ratio": (0.6, "at most"),
    "agent_rss_mib": (64, "at most"),
    "idle_agents_cpu": (2, "at most"),
}


@dataclass(frozen=True)
class Measured:
    """Checks stored in a period, CPU seconds of the server by kind, and CPU seconds and peak memory of the agent."""

    checks: int
    seconds: float
    cpu: dict[str, float]
    agent_cpu: float = 0.0
    agent_mib: float = 0.0

    @property
    def rate(self) -> float:
        return self.checks / self.seconds

    def cpu_ms(self, *, without: str = "") -> float:
        """Return the CPU of the server for each check, without one kind of process."""
        return 1000 * sum(used for kind, used in self.cpu.items() if kind != without) / max(self.checks, 1)

    def __str__(self) -> str:
        used = ", ".join(f"{kind} {1000 * seconds / max(self.checks, 1):.3f}" for kind, seconds in self.cpu.items())
        return f"{self.rate:.0f} checks/s, CPU ms for each: {used}, agent {1000 * self.agent_cpu / self.checks:.3f}"


def measured(machine: Machine, agent: int | None = None) -> Measured:
    """Measure for SECONDS_TO_RUN after a time to settle. `agent` is the pid of the agent."""
    from checks.results.models import CheckResult

    machine.run(SETTLE_SECONDS)
    own = {"agent": [] if agent is None else [agent]}
    before = cpu_seconds(own)["agent"]
    start, end, cpu = machine.run(SECONDS_TO_RUN)
    agent_cpu, agent_mib = cpu_seconds(own)["agent"] - before, memory_mib(own, shared=True)["agent"]
    machine.run(2.0)  # the last results are stored
    checks = CheckResult.objects.filter(checked_at__gte=start, checked_at__lt=end).count()
    if not checks:
        raise SystemExit("not a single check was made")
    return Measured(checks, (end - start).total_seconds(), cpu, agent_cpu, agent_mib)


def schedule(per_second: float) -> None:
    """Change the interval of all monitors, and spread them over it."""
    from django.db import connection

    interval = max(1, round(MONITORS / per_second)) if per_second else DAY_SEC
    with connection.cursor() as cursor:
        cursor.execute("UPDATE monitors_monitor SET interval_sec = %s WHERE url <> ''", [interval])
        cursor.execute(
            "UPDATE monitors_monitorstate SET next_due_at = now() + %s * (%s + random()) * interval '1 second'"
            " WHERE claimed_at IS NULL",
            [interval, 0 if per_second else 1],
        )


def drain(machine: Machine) -> None:
    """Stop checking, and wait until all running checks are stored."""
    from django.db import connection

    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        schedule(0)
        machine.run(1.0)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM monitors_monitorstate WHERE claimed_at IS NOT NULL")
            (running,) = cursor.fetchone()
        if not running:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{running} checks have no result after {DRAIN_SECONDS} s")


def claims_and_results() -> tuple[int, int]:
    """Return how many claims were taken, and how many results were stored."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT sum(claim) FROM monitors_monitorstate), (SELECT count(*) FROM checks_checkresult)"
        )
        claims, results = cursor.fetchone()
    return int(claims), int(results)


def faults() -> Iterator[str]:
    """Check all results after `drain`."""
    from django.db import connection

    from core.metrics import read_sums
    from monitors.metrics import CLAIMS_LOST

    questions = {
        "checks of a target that is up failed": "SELECT count(*) FROM checks_checkresult WHERE verdict <> 'up'",
        "checks were stored twice": "SELECT count(*) - count(DISTINCT (monitor_id, claim)) FROM checks_checkresult",
    }
    with connection.cursor() as cursor:
        for text, question in questions.items():
            cursor.execute(question)
            (count,) = cursor.fetchone()
            if count:
                yield f"{count} {text}"
    if lost := sum(CLAIMS_LOST.read(read_sums()).values()):
        yield f"{lost:.0f} checks were lost"


def add_agents(location: Location, count: int) -> list[str]:
    """Create agents that were just seen, and return their credentials."""
    from checks.agent_protocol import PROTOCOL
    from core.clock import utc_now
    from core.credentials import issue
    from locations.agents import AGENT_PREFIX
    from locations.models import Agent

    issued = [issue(AGENT_PREFIX) for _ in range(count)]
    common = {"name": "bench", "version": "1.0", "protocol": PROTOCOL, "created_at": utc_now()}
    Agent.objects.bulk_create(
        Agent(location=location, last_seen_at=utc_now(), **columns, **common) for _, columns in issued
    )
    return [credential for credential, _ in issued]


@contextmanager
def running_agent(folder: Path, port: int, credential: str) -> Iterator[int]:
    """Run an agent that has joined, and yield its pid."""
    state = folder / "agent.json"
    given = {"server": f"http://127.0.0.1:{port}", "credential": credential, "agent_id": "", "location_name": LOCATION}
    state.touch(0o600)
    state.write_text(json.dumps(given | {"joined_with": ""}))
    command = [sys.executable, "-m", "pulsekeeper", "agent", "--state", str(state), "--allow", "127.0.0.0/8"]
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--connectivity", ""],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    try:
        yield process.pid
        if process.poll() is not None:
            raise SystemExit(f"the agent ended: {(folder / 'agent.log').read_text()[-3000:]}")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def web_cpu(machine: Machine) -> float:
    """Return the percentage of a core that web uses for IDLE_SECONDS."""
    machine.run(SETTLE_SECONDS)
    start, end, cpu = machine.run(IDLE_SECONDS)
    return 100 * cpu["web"] / (end - start).total_seconds()


def idle_cpu(machine: Machine, port: int, location: Location) -> tuple[float, float, int]:
    """Return the percentage of a core that web uses while agents wait, and without them, and their refused requests."""
    from benchmarks.fairness.tenants import Process

    alone = web_cpu(machine)
    credentials = add_agents(location, IDLE_AGENTS)
    with Process("benchmarks.load.idle", str(port)) as idle:
        idle.write(credentials)
        if idle.read(seconds=60) != "started":
            raise SystemExit("the idle agents did not start")
        used = web_cpu(machine)
        idle.end_input()
        seen = idle.read()
    say(f"{IDLE_AGENTS} idle agents: web {used:.2f} % of a core, {alone:.2f} % without them, {seen['answers']} answers")
    return used, alone, seen["refusals"]


def run(folder: Path) -> tuple[dict[str, Any], list[str]]:
    wrong: list[str] = []
    with running_target(folder) as target, servers(folder):
        from django.db import connection

        from benchmarks.load.fill import Fleet
        from tests.locations import shared

        Fleet(target, {"http": 1.0}).add_monitors(MONITORS)
        schedule(CHECKS_DUE)
        port = int(os.environ["PORT"])
        with Tree(os.environ, folder, counts={}) as tree:
            machine = Machine(tree, folder)
            machine.start()
            worker = measured(machine)
            say(f"worker: {worker}")
            drain(machine)

            location = shared(LOCATION)
            (credential,) = add_agents(location, 1)
            with connection.cursor() as cursor:
                cursor.execute("UPDATE monitors_monitor SET locations = %s WHERE url <> ''", [json.dumps([LOCATION])])
            before = claims_and_results()
            with running_agent(folder, port, credential) as agent:
                machine.run(5.0)  # the dispatcher sees it
                schedule(CALM_PER_MINUTE / 60)
                calm = measured(machine, agent)
                say(f"agent at {60 * calm.rate:.0f} checks a minute: {calm.agent_mib:.1f} MiB, {calm}")
                drain(machine)
                claims, results = (now - then for now, then in zip(claims_and_results(), before, strict=True))
                if claims != results:
                    wrong.append(f"{claims} claims have {results} results")
                schedule(CHECKS_DUE / 2)
                before = claims_and_results()
                full = measured(machine, agent)
                drain(machine)
                claims, results = (now - then for now, then in zip(claims_and_results(), before, strict=True))
                say(f"{claims} claims, of which {claims - results} were postponed")
                say(f"agent: {full}, {full.agent_mib:.1f} MiB")
            wrong += faults()
            idle, alone, refused = idle_cpu(machine, port, location)
            if refused:
                wrong.append(f"{refused} requests of idle agents were refused")
    return {
        "rate_ratio": round(full.rate / worker.rate, 3),
        "server_cpu_ratio": round(full.cpu_ms(without="worker") / worker.cpu_ms(), 3),
        "agent_rss_mib": round(calm.agent_mib, 1),
        "idle_agents_cpu": round(idle - alone, 2),
        "web_cpu_without_agents": round(alone, 2),
        "worker_rate": round(worker.rate),
        "agent_rate": round(full.rate),
        "worker_cpu_ms": round(worker.cpu_ms(), 4),
        "agent_server_cpu_ms": round(full.cpu_ms(without="worker"), 4),
        "monitors": MONITORS,
        "checks_due": CHECKS_DUE,
        "idle_agents": IDLE_AGENTS,
        "target": target.name,
    }, wrong


def missed_goals(found: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {found[name]}, {side} {goal}"
        for name, (goal, side) in GOALS.items()
        if (found[name] < goal if side == "at least" else found[name] > goal)
    ]


def main() -> int:
    # On SIGTERM, exit through all `with` blocks, so that everything is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-agents-") as folder:
        found, wrong = run(Path(folder))
    for line in wrong:
        say(line)
    print(json.dumps(found | {"missed_goals": missed_goals(found), "errors": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
