"""One run: the servers, the target, the tree and its load; the script's blows; and the account."""

from __future__ import annotations

import json
import os
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

from config import readiness
from config.embedded import embedded_servers, load_or_create_secrets
from tests.alerts.receiver import Receiver
from tests.faults.killing import RECOVERY_SECONDS, Killer
from tests.faults.pinging import Job, Jobs
from tests.faults.script import DEADLINE_SEC, LEASE_SEC, TIMEOUT_MS, WITHIN_SEC, Script, write_script
from tests.faults.taking import Taker
from tests.processes.tree import Tree
from tests.processes.up import free_port

if TYPE_CHECKING:
    from tests.faults.accounts import Account
    from tests.faults.tenant import Watched

ROOT = Path(__file__).resolve().parents[2]
# Any number of beats and workers may run at once, so more than one of them does.
COUNTS = {"worker": 2, "beat": 2, "interactive": 2}
FIRST_STATUS_SECONDS = 60
# The lease of a sender that was killed, what a message gathers in, and a few retries after that.
ALERTS_SECONDS = 300


def run(*, seed: int, seconds: float, monitors: int) -> dict[str, Any]:
    """The figures to print. What is wrong is explained on standard error."""
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-faults-") as name, ExitStack() as stack:
        folder = Path(name)
        _serve(stack, folder)
        tree = Tree(os.environ, folder, counts=COUNTS)
        victims: dict[str, list[str]] = {}
        for member in tree.members.values():
            victims.setdefault(member.kind, []).append(member.name)
        script = write_script(seed, seconds=seconds, monitors=monitors, victims=victims)
        target = stack.enter_context(_target(folder, script))
        stage = Stage(script, folder, tree, target)
        account = stage.play(stack)
        for faults in account.faults.values():
            for line in faults[:20]:
                print(line, file=sys.stderr)  # noqa: T201
        return {"monitors": monitors, "kills": stage.killer.kills, **account.counts(), **stage.figures}


def _serve(stack: ExitStack, folder: Path) -> None:
    """Private servers that keep what they have promised to keep, and settings for us and the tree."""
    found = stack.enter_context(
        embedded_servers(folder, postgres_settings={"fsync": "on", "synchronous_commit": "on"})
    )
    os.environ.update(
        load_or_create_secrets(folder),
        DATA_DIR=str(folder),
        DATABASE_URL=found.database_url,
        REDIS_URL=found.redis_url,
        ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
        THROTTLE_SCALE="0",
        FLAPPING_CHANGES="100",  # of flapping monitors nothing would be said
        FLAPPING_MINUTES="2",
        PORT=str(free_port()),
        DJANGO_SETTINGS_MODULE="config.settings",
    )
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
    django.setup()


@dataclass
class TargetProcess:
    process: subprocess.Popen[str]
    port: int
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
def _target(folder: Path, script: Script) -> Iterator[TargetProcess]:
    written, log = folder / "script.json", folder / "requests.log"
    written.write_text(json.dumps(script.as_json()))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.target", str(written), str(log)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield TargetProcess(process, int(process.stdout.readline()), log)
    finally:
        process.terminate()
        process.communicate()


class Stage:
    """Where the script is played."""

    def __init__(self, script: Script, folder: Path, tree: Tree, target: TargetProcess) -> None:
        self._script = script
        self._tree = tree
        self._target = target
        self.killer = Killer(tree, folder)
        self.figures: dict[str, Any] = {}

    def play(self, stack: ExitStack) -> Account:
        from monitors.models import LEASE_MARGIN
        from tests.faults.accounts import Account
        from tests.faults.news import account_for_alerts
        from tests.faults.tenant import make_channels, make_monitors

        assert LEASE_MARGIN.total_seconds() + TIMEOUT_MS / 1000 == LEASE_SEC, (
            "the script's idea of a lease is old"
        )
        fleet = make_monitors(self._script.parts, port=self._target.port)
        taker = Taker(self._script.seed)
        make_channels(fleet, receiver=stack.enter_context(Receiver(taker)).url)
        port = int(os.environ["PORT"])
        jobs = Jobs(
            [
                Job(watched.part, f"/v1/heartbeats/{watched.public_id}/ping", port)
                for watched in fleet
                if watched.part.kind == "heartbeat"
            ]
        )
        stack.callback(jobs.stop)
        stack.enter_context(self._tree)
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
        self._tree.stop()
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
            self._until("everything answers again", RECOVERY_SECONDS, partial(_answers, since))
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

    def _until(self, what: str, seconds: float, enough: Callable[[], bool]) -> None:
        if not self.killer.tend(seconds, enough=enough):
            raise SystemExit(f"not within {seconds:g} s: {what}")


def _without_status() -> int:
    from monitors.models import MonitorState

    return MonitorState.objects.filter(status=None).count()


def _answers(since: datetime) -> bool:
    """The web process, and the scheduler through broker, dispatcher and database."""
    home = f"http://127.0.0.1:{os.environ['PORT']}"
    return readiness.web_answers(home) and readiness.beat_answers(since)


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
