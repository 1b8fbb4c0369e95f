"""One run: start servers, target, tree and load, inject the faults, then audit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

from devserver import readiness
from tests.alerts.receiver import Receiver
from tests.faults.consumer import AlertConsumer
from tests.faults.heartbeat_jobs import Job, Jobs
from tests.faults.injector import RECOVERY_SECONDS, FaultInjector
from tests.faults.past import audit_past, prepare
from tests.faults.script import (
    CHILDREN,
    CRON_DEADLINE_SEC,
    LEASE_SEC,
    STARTING_SEC,
    TIMEOUT_MS,
    WITHIN_SEC,
    Script,
    write_script,
)
from tests.faults.system import System

if TYPE_CHECKING:
    from tests.faults.monitor_audit import Audit
    from tests.faults.tenant import MonitoredPart

ROOT = Path(__file__).resolve().parents[2]
FIRST_STATUS_SECONDS = 60
# Sufficient for the lease of a killed sender, the grouping delay and a few retries.
ALERTS_SECONDS = 300


def run(
    serve: Callable[[ExitStack, Path], System],
    *,
    seed: int,
    seconds: float,
    monitors: int,
    starting_sec: float = STARTING_SEC,
    children: int = CHILDREN,
    hostile: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the figures to print, and explain violations on standard error.

    `hostile` names the attacks of `tests.faults.hostile`. `serve` prepares the system in a temporary folder and puts
    its settings into os.environ.
    """
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-faults-") as name, ExitStack() as stack:
        folder = Path(name)
        system = serve(stack, folder)
        django.setup()
        script = write_script(
            seed,
            seconds=seconds,
            monitors=monitors,
            victims=system.victims(),
            starting_sec=starting_sec,
            replaced=system.replaced,
            children=children,
            servers=system.servers,
        )
        target = stack.enter_context(_target(folder, script, system.address))
        run = FaultRun(script, system, target, hostile)
        audit = run.play(stack)
        for faults in audit.violations.values():
            for line in faults[:20]:
                print(line, file=sys.stderr)  # noqa: T201
        acted = {"kills": run.injector.kills, "replaced": run.injector.replaced}
        return {"monitors": monitors, **acted, **audit.counts(), **run.figures}


@dataclass
class TargetProcess:
    process: subprocess.Popen[str]
    url: str
    log: Path

    def begin(self, start: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{start}\n")
        self.process.stdin.flush()

    def requests(self) -> Iterator[tuple[int, str, float]]:
        for line in self.log.read_text().splitlines():
            at, number, run_id, _ = line.split(" ")
            yield int(number), run_id, float(at)


@contextmanager
def _target(folder: Path, script: Script, address: str) -> Iterator[TargetProcess]:
    written, log = folder / "script.json", folder / "requests.log"
    written.write_text(json.dumps(script.as_json()))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.target", str(written), str(log), address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield TargetProcess(process, f"http://{address}:{port}", log)
    finally:
        process.terminate()
        process.communicate()


class FaultRun:
    """Play a script against a system."""

    def __init__(self, script: Script, system: System, target: TargetProcess, hostile: Sequence[str]) -> None:
        self._script = script
        self._hostile = hostile
        self._system = system
        self._target = target
        self.injector = FaultInjector(system)
        self.figures: dict[str, Any] = {}

    def play(self, stack: ExitStack) -> Audit:
        from monitors.models import LEASE_MARGIN
        from tests.faults.alert_audit import audit_alerts
        from tests.faults.hostile import hostile_tenants
        from tests.faults.monitor_audit import Audit
        from tests.faults.signal_audit import audit_signals
        from tests.faults.tenant import make_channels, make_monitors, schedule_checks

        assert LEASE_MARGIN.total_seconds() + TIMEOUT_MS / 1000 == LEASE_SEC, "LEASE_SEC of the script is out of date"
        fleet = make_monitors(self._script.parts, target=self._target.url)
        consumer = AlertConsumer(self._script.seed)
        make_channels(fleet, receiver=stack.enter_context(Receiver(consumer, address=self._system.receivers)).url)
        jobs = Jobs(
            [
                Job(watched.part, f"/v1/heartbeats/{watched.public_id}/ping", self._system.webs)
                for watched in fleet
                if watched.part.kind == "heartbeat"
            ]
        )
        stack.callback(jobs.stop)
        schedule_checks(fleet)
        packers = [member for member in self._system.tree.members.values() if member.own_command is not None]
        if packers:
            prepare()
        stack.enter_context(self._system.tree)
        jobs.go()
        self._until("every monitor has its first status", FIRST_STATUS_SECONDS, lambda: not _without_status(fleet))

        start = time.time()
        self._target.begin(start)
        jobs.begin(start)
        self.injector.note(f"started {len(fleet)} monitors, seed {self._script.seed}")
        with hostile_tenants(self._hostile, port=int(self._system.webs[0].rpartition(":")[2])) as answers:
            recoveries = self._bursts(start)
        if self._hostile:
            self.figures["hostile"] = answers
        consumer.accept_all = True
        self._settle(fleet, start, recoveries[-1])
        self._send_the_rest()
        self.injector.note(str(consumer))
        end = time.time() - start
        audit = Audit(start, end, recoveries, self.injector.events)
        jobs.stop()
        self._system.tree.stop()
        if packers:
            self.figures["past"] = audit_past(audit, [self._system.tree.log(member.name) for member in packers])
        audit.take(fleet, {job.part.number: job.attempts for job in jobs.jobs}, self._target.requests())
        self.figures["signals"] = audit_signals(audit, fleet, {job.part.number: job.attempts for job in jobs.jobs})
        bursts = [burst.start for burst in self._script.bursts]
        alerts = audit_alerts(audit, fleet, consumer.received, bursts)
        self.figures |= {"alerts": alerts, "seed": self._script.seed, "seconds": round(end, 1)}
        return audit

    def _bursts(self, start: float) -> list[float]:
        """Play all bursts. Return when each recovery was complete, in seconds since the start."""
        recoveries = []
        for burst in self._script.bursts:
            self.injector.play(burst, start=start)
            since = datetime.now(UTC)
            self._until("everything answers again", RECOVERY_SECONDS, partial(self._answers, since))
            recovered = time.time() - start
            self.injector.note(f"recovered {recovered - burst.end:.1f} s after the last fault")
            recoveries.append(recovered)
            if burst is not self._script.bursts[-1]:
                if recovered + WITHIN_SEC > burst.calm_end:
                    raise SystemExit("this machine is too slow: a calm ended before the recovery was complete")
                self.injector.tend(start + burst.calm_end - time.time())
        return recoveries

    def _settle(self, fleet: list[MonitoredPart], start: float, recovered: float) -> None:
        """Wait until every status is right, or the time for it is over."""
        last = max(flip.at for watched in fleet for flip in watched.part.flips)
        limit = max(recovered, last + CRON_DEADLINE_SEC) + WITHIN_SEC - (time.time() - start)
        settled = self.injector.tend(limit, enough=lambda: not _unsettled(fleet, start, recovered))
        self.injector.note("settled" if settled else "not settled in time")

    def _send_the_rest(self) -> None:
        """Wait until all alerts are delivered, or the time for it is over. The audit reports the rest."""
        from tests.faults.alert_audit import unfinished

        sent = self.injector.tend(ALERTS_SECONDS, enough=lambda: not unfinished())
        self.injector.note("all alerts delivered" if sent else f"not delivered in {ALERTS_SECONDS} s: {unfinished()}")

    def _answers(self, since: datetime) -> bool:
        """Return whether web and the scheduler (through broker, dispatcher and database) work."""
        webs = all(readiness.web_answers(f"http://{web}") for web in self._system.webs)
        return webs and readiness.beat_answers(since)

    def _until(self, what: str, seconds: float, enough: Callable[[], bool]) -> None:
        if not self.injector.tend(seconds, enough=enough):
            raise SystemExit(f"not within {seconds:g} s: {what}")


def _without_status(fleet: list[MonitoredPart]) -> int:
    from monitors.models import MonitorState

    return MonitorState.objects.filter(status=None, pk__in=[watched.monitor_id for watched in fleet]).count()


def _unsettled(fleet: list[MonitoredPart], start: float, recovered: float) -> list[MonitoredPart]:
    from monitors.models import MonitorState

    states = {state.monitor_id: state for state in MonitorState.objects.all()}
    now, since = time.time() - start, datetime.fromtimestamp(start + recovered, UTC)
    return [
        watched
        for watched in fleet
        for state in [states[watched.monitor_id]]
        if (state.status != "down") is not watched.part.is_up(now)
        or (
            watched.part.kind != "heartbeat"
            and not watched.part.cron
            and (state.last_checked_at is None or state.last_checked_at < since)
        )
    ]
