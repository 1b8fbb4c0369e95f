"""Play one fault after the other, and measure false and missed events, and when each of three reporters notices.

    python -m tests.faults.plays [--list] [--logs FOLDER] [name …]

A name may be the start of several. Needs root, and Debian's postgresql, redis-server, prometheus, libfaketime and
iproute2. The last line printed is one JSON object. For each play: `false_downs`: results and changes that report the
site as down while it was up; `false_missed`: the same for jobs that pinged; `missed`: undetected outages of the site
and of a job, alerts and recoveries; `reported_s`: after how many seconds /readyz, a rule of deploy/prometheus and
System health reported the fault; `coverage`: before, the lowest during, and after the fault, and after how many seconds
it dropped. Exits 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.clocks import AHEAD, KINDS
from tests.faults.hosts import isolated
from tests.faults.own_network import INTERNET
from tests.faults.stage import DISK, PATIENCE_SEC, Stage, make_stage, note, seconds_until
from tests.metrics.prometheus import firing
from tests.processes.waiting import until

LIMIT_SEC = 60
FROZEN_SEC = 120
RARE = re.compile(r"clock-(?!database)\w+(?!.600)[+-]\d+")  # on request only: 600 s of each kind take long enough

Fault = Callable[[Stage], AbstractContextManager[None]]


@dataclass(frozen=True)
class Play:
    """A fault, how /readyz and System health word it, and the alert that fires, with the value of one of its labels.

    `stops`: no monitor is checked during the fault, so coverage must drop. Otherwise an outage during the fault must
    be detected.
    """

    fault: Fault
    says: str
    rule: str
    label: str = ""
    stops: bool = True


def _wrong_clock(kind: str, ahead: int) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        stage.restart(kind, ahead=ahead)
        yield
        stage.restart(kind, ahead=0)

    return fault


def _database_clock(ahead: int) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        stage.set_database_clock(ahead)
        yield
        stage.set_database_clock(0)

    return fault


def _cut(*, silently: bool) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        stage.workers.cut(INTERNET, silently=silently)
        yield
        stage.workers.mend(INTERNET)

    return fault


@contextmanager
def _full_disk(stage: Stage) -> Iterator[None]:
    stage.fill_disk()
    yield
    stage.resize_disk(DISK)


@contextmanager
def _read_only(stage: Stage) -> Iterator[None]:
    stage.set_read_only("on")
    yield
    stage.set_read_only("off")


@contextmanager
def _dead_mail(stage: Stage) -> Iterator[None]:
    """Only an e-mail detects it, so let an outage of the site begin and end."""
    stage.inbox.__exit__(None, None, None)
    assert stage.outage() == (0, 0, 0), "missed or false while the mail server is away"
    yield
    stage.replace_inbox()


def _frozen(kind: str) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        stage.signal(kind, signal.SIGSTOP)
        yield
        stage.signal(kind, signal.SIGCONT)

    return fault


@contextmanager
def _frozen_history(stage: Stage) -> Iterator[None]:
    """Freeze the history database for FROZEN_SEC at least."""
    until = time.monotonic() + FROZEN_SEC
    stage.signal_history(signal.SIGSTOP)
    yield
    time.sleep(max(0.0, until - time.monotonic()))
    stage.signal_history(signal.SIGCONT)


def _ended(kind: str) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        for member in stage.members(kind):
            stage.tree.kill(member.name)
        yield
        stage.tree.start()

    return fault


def _away(*names: str) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        servers = [getattr(stage, name) for name in names]
        for server in servers:
            server.kill()
        yield
        for server in servers:
            server.start()

    return fault


def all_plays() -> dict[str, Play]:
    plays = {}
    for kind in KINDS:
        for ahead in AHEAD:
            says = rf"Clocks: .*the clock of a {kind} process is"
            fault = _wrong_clock(kind, ahead)
            plays[f"clock-{kind}{ahead:+}"] = Play(fault, says, "PulsekeeperClockDiffers", kind, stops=False)
    for ahead in AHEAD:
        direction = "forward" if ahead > 0 else "back"
        says = rf"Clocks: .*PostgreSQL's was set {direction}"
        fault = _database_clock(ahead)
        plays[f"clock-database{ahead:+}"] = Play(fault, says, "PulsekeeperClockStepped", direction, stops=False)
    for way in ("link", "silent"):
        plays[f"network-{way}"] = Play(_cut(silently=way == "silent"), "Network: ", "PulsekeeperOwnNetworkDown")
    # On a full disk PostgreSQL may also refuse new connections: it cannot rebuild its relcache init file.
    says, rule = "Writes: the disk|[Dd]atabase does not answer", "PulsekeeperNoWrites|PulsekeeperUnreachable"
    plays["disk-full"] = Play(_full_disk, says, rule)
    plays["read-only"] = Play(_read_only, "Writes: .*read-only", "PulsekeeperNoWrites")
    plays["mail"] = Play(_dead_mail, "Mail: ", "PulsekeeperMailServerFails", stops=False)
    away = "[Dd]atabase does not answer"  # System health cannot authenticate its reader then: the error page reports it
    plays["away-database"] = Play(_away("database"), away, "PulsekeeperUnreachable", "database")
    plays["away-broker"] = Play(_away("broker"), "Broker: ", "PulsekeeperUnreachable", "broker")
    plays["away-both"] = Play(_away("broker", "database"), away, "PulsekeeperUnreachable", "database")
    says, rule = "History: its database does not answer", "PulsekeeperHistoryUnreachable"
    plays["frozen-history"] = Play(_frozen_history, says, rule, stops=False)
    for kind, says in {"dispatcher": "Scheduler: ", "beat": "Scheduler: ", "worker": "(Coverage|Monitors): "}.items():
        for how, fault in {"frozen": _frozen(kind), "ended": _ended(kind)}.items():
            plays[f"{how}-{kind}"] = Play(fault, says, "PulsekeeperProcessMissing", kind)
    return plays


def run(stage: Stage, play: Play) -> dict[str, Any]:
    """Play it on a healthy stage. Return the figures."""

    def is_well() -> bool:
        return not stage.ready() and stage.coverage() == 1 and stage.is_all("up")

    note("wait until all is well")
    until(is_well, PATIENCE_SEC, "all is well before")
    until(lambda: not stage.fires(play.rule, play.label), PATIENCE_SEC, f"{play.rule} does not fire before")
    stage.mark()
    before, seen = stage.coverage(), set[float | None]()
    totals = [0, 0, 0]

    def add(found: tuple[int, int, int]) -> None:
        totals[:] = [total + one for total, one in zip(totals, found, strict=True)]

    def is_said(text: str) -> bool:
        return re.search(play.says, text) is not None

    def has_dropped() -> bool:
        seen.add(stage.coverage())
        return any(each is None or each < 1 for each in seen)

    note("begin")
    began = time.monotonic()
    with play.fault(stage):
        conditions: dict[str, Callable[[], bool]] = {
            "readyz": lambda: is_said(" ".join(stage.ready())),
            "rule": lambda: stage.fires(play.rule, play.label),
            "system_health": lambda: is_said(stage.system_health()),
        }
        if play.stops:
            conditions["coverage"] = has_dropped
        reported = seconds_until(conditions, since=began, longest=LIMIT_SEC)
        dropped = reported.pop("coverage", None)
        if None in reported.values():
            note(f"/readyz: {stage.ready()}; System health: {stage.system_health()[:500]}; {firing(stage.prometheus)}")
        if not play.stops:
            add(stage.outage())
        has_dropped()
    note("end")
    until(is_well, PATIENCE_SEC, "all is well after")
    add(stage.outage(of_job=True))
    missed, false_downs, false_missed = totals
    during = None if None in seen else min(each for each in seen if each is not None)
    coverage = {"before": before, "during": during, "after": stage.coverage(), "dropped_s": dropped}
    return {
        "false_downs": false_downs,
        "missed": missed,
        "false_missed": false_missed,
        "reported_s": reported,
        "coverage": coverage,
    }


def broken(found: Mapping[str, Any], *, stops: bool) -> list[str]:
    """Return the names of the limits that a play broke."""
    coverage = found["coverage"]
    limits = {name: found[name] == 0 for name in ("false_downs", "missed", "false_missed")}
    limits |= {f"reported by {name}": seconds is not None for name, seconds in found["reported_s"].items()}
    limits |= {f"coverage {when}": coverage[when] == 1 for when in ("before", "after")}
    if stops:
        limits["coverage falls"] = coverage["dropped_s"] is not None
    return [name for name, is_kept in limits.items() if not is_kept]


def _copy_logs(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for log in source.glob("*.log"):
        shutil.copy(log, target)


def main() -> None:
    plays = all_plays()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--logs", type=Path, help="copy all logs into this folder at the end")
    given = parser.parse_args()
    chosen = {
        name: play
        for name, play in plays.items()
        if (name.startswith(tuple(given.names)) if given.names else not RARE.fullmatch(name))
    }
    if given.list:
        print(*chosen, sep="\n")  # noqa: T201
        return
    isolated("tests.faults.plays")
    found = {}
    failed = False
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-plays-") as name, ExitStack() as stack:
        if given.logs:
            stack.callback(_copy_logs, Path(name), given.logs)
        stage = make_stage(stack, Path(name))
        try:
            for title, play in chosen.items():
                found[title] = run(stage, play)
                limits = broken(found[title], stops=play.stops)
                failed |= bool(limits)
                note(f"{title}: {json.dumps(found[title])}{f' BROKEN: {limits}' if limits else ''}")
        finally:  # after a play that cannot begin or end, print the figures of the earlier ones
            print(json.dumps(found))  # noqa: T201
    sys.exit(failed)


if __name__ == "__main__":
    main()
