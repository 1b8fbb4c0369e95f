"""One run: the servers, the target, the tree and its load; the script's blows; and the account."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

from devserver import readiness
from tests.alerts.receiver import Receiver
from tests.faults.killing import RECOVERY_SECONDS, Killer
from tests.faults.pinging import Job, Jobs
from tests.faults.script import (
    DEADLINE_SEC,
    LEASE_SEC,
    STARTING_SEC,
    TIMEOUT_MS,
    WITHIN_SEC,
    Script,
    write_script,
)
from tests.faults.system import System
from tests.faults.taking import Taker

if TYPE_CHECKING:
    from tests.faults.accounts import Account
    from tests.faults.tenant import Watched

ROOT = Path(__file__).resolve().parents[2]
FIRST_STATUS_SECONDS = 60
# The lease of a sender that was killed, what a message gathers in, and a few retries after that.
ALERTS_SECONDS = 300


def run(
    serve: Callable[[ExitStack, Path], System],
    *,
    seed: int,
    seconds: float,
    monitors: int,
    starting_sec: float = STARTING_SEC,
) -> dict[str, Any]:
    """The figures to print. What is wrong is explained on standard error.

    `serve` prepares what is tried, in a folder that is removed in the end, and the settings in os.environ.
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
            renewals=system.renewals,
            starting_sec=starting_sec,
        )
        target = stack.enter_context(_target(folder, script, system.address))
        stage = Stage(script, system, target)
        account = stage.play(stack)
        for faults in account.faults.values():
            for line in faults[:20]:
                print(line, file=sys.stderr)  # noqa: T201
        return {"monitors": monitors, "kills": stage.killer.kills, **account.counts(), **stage.figures}


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


class Stage:
    """Where the script is played."""

    def __init__(self, script: Script, system: System, target: TargetProcess) -> None:
        self._script = script
        self._system = system
        self._target = target
        self.killer = Killer(system)
        self.figures: dict[str, Any] = {}

    def play(self, stack: ExitStack) -> Account:
        from monitors.models import LEASE_MARGIN
        from tests.faults.accounts import Account
        from tests.faults.news import account_for_alerts
        from tests.faults.tenant import let_go, make_channels, make_monitors

        assert LEASE_MARGIN.total_seconds() + TIMEOUT_MS / 1000 == LEASE_SEC, (
            "the script's idea of a lease is old"
        )
        fleet = make_monitors(self._script.parts, target=self._target.url)
        taker = Taker(self._script.seed)
        make_channels(fleet, receiver=stack.enter_context(Receiver(taker, address=self._system.address)).url)
        jobs = Jobs(
            [
                Job(watched.part, f"/v1/heartbeats/{watched.public_id}/ping", self._system.webs)
                for watched in fleet
                if watched.part.kind == "heartbeat"
            ]
        )
        stack.callback(jobs.stop)
        let_go(fleet)
        stack.enter_context(self._system.tree)
        jobs.go()
        self._until("every monitor has its first status", FIRST_STATUS_SECONDS, lambda: not _without_status())

        start = time.time()
        self._target.begin(start)
        jobs.begin(start)
        self.killer.note(f"started {len(fleet)} monitors, seed {self._script.seed}")
        recoveries = self._bouts(start)
        taker.willing = True
        self._settle(fleet, start, recoveries[-1])
        self._send_the_rest()
        self.killer.note(str(taker))
        end = time.time() - start
        account = Account(start, end, recoveries, self.killer.events)
        jobs.stop()
        self._system.tree.stop()
        account.take(fleet, {job.part.number: job.attempts for job in jobs.jobs}, self._target.requests())
        alerts = account_for_alerts(account, fleet, taker.tries)
        self.figures |= {"alerts": alerts, "seed": self._script.seed, "seconds": round(end, 1)}
        return account

    def _bouts(self, start: float) -> list[float]:
        """Play all; when each was got over, in seconds since the start."""
        recoveries = []
        for bout in self._script.bouts:
            self.killer.play(bout, start=start)
            since = datetime.now(UTC)
            self._until("everything answers again", RECOVERY_SECONDS, partial(self._answers, since))
            recovered = time.time() - start
            self.killer.note(f"recovered {recovered - bout.end:.1f} s after the last blow was made good")
            recoveries.append(recovered)
            if bout is not self._script.bouts[-1]:
                if recovered + WITHIN_SEC > bout.calm_end:
                    raise SystemExit(
                        "this machine is too slow for the script: a calm is over before it has begun"
                    )
                self.killer.tend(start + bout.calm_end - time.time())
        return recoveries

    def _settle(self, fleet: list[Watched], start: float, recovered: float) -> None:
        """Until all is as it should be, or has had the time to be so."""
        last = max(flip.at for watched in fleet for flip in watched.part.flips)
        limit = max(recovered, last + DEADLINE_SEC) + WITHIN_SEC - (time.time() - start)
        settled = self.killer.tend(limit, enough=lambda: not _unsettled(fleet, start, recovered))
        self.killer.note("settled" if settled else "not settled in time")

    def _send_the_rest(self) -> None:
        """Until all that is to be said was taken, or has had the time to be so: the account has what is left."""
        from tests.faults.news import unfinished

        sent = self.killer.tend(ALERTS_SECONDS, enough=lambda: not unfinished())
        self.killer.note("all is said" if sent else f"in {ALERTS_SECONDS} s not all was said: {unfinished()}")

    def _answers(self, since: datetime) -> bool:
        """The web processes, and the scheduler through broker, dispatcher and database."""
        webs = all(readiness.web_answers(f"http://{web}") for web in self._system.webs)
        return webs and readiness.beat_answers(since)

    def _until(self, what: str, seconds: float, enough: Callable[[], bool]) -> None:
        if not self.killer.tend(seconds, enough=enough):
            raise SystemExit(f"not within {seconds:g} s: {what}")


def _without_status() -> int:
    from monitors.models import MonitorState

    return MonitorState.objects.filter(status=None).count()


def _unsettled(fleet: list[Watched], start: float, recovered: float) -> list[Watched]:
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
            and (state.last_checked_at is None or state.last_checked_at < since)
        )
    ]
