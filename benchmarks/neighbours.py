"""Measure whether a quiet tenant notices hostile ones: the proof of "Fair shares" in docs/operate/threat-model.md.

    python benchmarks/neighbours.py [--rows A,B] [--levels 0,1,10,100] [--seconds N] [--proxy nginx|caddy] [--quick]

The processes of the Procfile on private servers, with throttles as in production, and a quiet tenant: 60 monitors of
all types, whose targets on loopback switch at known times; heartbeats, two of them pinged every minute; an overview, a
list and a status page, each read twice a second; and webhooks that answer at once. Beside it each row of
`benchmarks.fairness.rows` is played by hostile accounts of the plan `free` (300 s, 50 monitors), each with an address
of its own, or by strangers at addresses of their own; at last by all rows together, which share the highest level.
Level 0 is the quiet tenant alone. Strangers have at most 10 addresses.

So that seconds show what would take minutes, the quiet tenant has a plan of its own: its checks are 5 s apart, and four
heartbeats expect a ping every 3 s. The monitors of hostile accounts keep 300 s, but are all due when a row begins, as
those of an attacker who resumes them together. Attackers and hostile targets run with `nice -n 19` and rest after each
refusal, because they share the cores of this machine.

Measured, each as 99th percentile and worst: how late checks are stored as made, against their slots; pings and pages,
each over a new connection, from when they were due; alerts, from the stored change until the receiver has them. A
failed request counts as one of 10 s. False changes are those that no target made; missed ones are those that are not
stored when a row ends. Limits: checks 5 s, pings and pages 1 s, alerts 10 s, nothing false or missed, and the memory
limit of web in docker-compose.yml. If a limit of time is broken, and /readyz says nothing but `ready` (no answer is
not `ready`), the attack continues until 60 s have passed since. Then it counts as `silent`.

After each row all that it created is taken out of service. If Pulsekeeper does not recover from it by itself, all
processes are started again (`restarts`). The last line is one JSON object; `rows` has the figures of each row and
level. Exits 1 if a limit was broken.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
import psutil
import redis
import trustme
import yaml

from benchmarks.fairness.client import Front
from benchmarks.fairness.rows import ROWS, Row
from benchmarks.load.usage import memory_mib
from devserver import readiness
from tests.alerts.inbox import Inbox
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place, Tree
from tests.processes.up import free_port
from tests.proxies import NAME, PATH, nginx

if TYPE_CHECKING:
    from benchmarks.fairness.audit import Changes
    from benchmarks.fairness.tenants import Hostile, Process
    from benchmarks.fairness.watching import Sample, Seen

ROOT = Path(__file__).resolve().parent.parent
LEVELS = {"accounts": (1, 10, 100), "addresses": (1, 10)}
SECONDS, QUICK_SECONDS = 15.0, 8.0
QUICK_ROWS, QUICK_LEVELS = ("openapi", "check-now"), (0, 1)
SILENT_SEC = 60.0
CALM_SEC, RESTART_SEC = 20.0, 60.0
LIMITS = {"check_late": 5.0, "ping": 1.0, "page": 1.0, "alert": 10.0}
"""Seconds."""
WORST = ("worst_check_late_s", "worst_ping_ms", "worst_page_ms", "worst_alert_s", "false_changes", "missed_changes")
COUNTED = ("web_peak_mib", "silent", "restarts")
QUIET, ALL = "quiet", "all"

Figures = dict[str, Any]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def web_limit_mib() -> float:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return float(compose["services"]["web"]["deploy"]["resources"]["limits"]["memory"].removesuffix("m"))


def percentile(samples: Sequence[Sample], percent: int) -> float:
    taken = sorted(sample.taken for sample in samples)
    return taken[math.ceil(len(taken) * percent / 100) - 1] if taken else 0.0


class Neighbours:
    """A running Pulsekeeper with its tenants."""

    def __init__(
        self, stack: ExitStack, folder: Path, *, arguments: argparse.Namespace, accounts: int, addresses: int
    ) -> None:
        self._patience, proxy = arguments.patience, arguments.proxy
        self._dice = random.Random(26)
        inbox = stack.enter_context(Inbox())
        serve_privately(stack, folder)
        port = free_port()
        os.environ.update(
            PORT=str(port),
            THROTTLE_SCALE="1",
            EMAIL_URL=f"smtp://127.0.0.1:{inbox.port}",
            SSL_CERT_FILE=str(folder / "ca.pem"),
            **({"BASE_URL": f"https://{NAME}", "ALLOWED_HOSTS": f"{NAME},127.0.0.1"} if proxy else {}),
            **({"TRUSTED_PROXIES": "127.0.0.1/32"} if proxy else {}),
        )
        migrate(Place())
        django.setup()
        from accounts.services import create_account
        from benchmarks.fairness import tenants, watching

        direct = Front(port)
        self._front = stack.enter_context(proxied(proxy, folder, port)) if proxy else direct
        self._targets = stack.enter_context(
            tenants.Process("benchmarks.fairness.targets", "quiet", str(folder), str(sum(tenants.MIX.values())))
        )
        self._ports = self._targets.read()
        self._watch = stack.enter_context(watching.Watch(self._front, direct))
        self._quiet = tenants.make_quiet(self._ports, self._watch.url)
        self._grave = create_account(email="grave@example.com", password=None)
        self._accounts = tenants.make_hostile(max(1, accounts))
        tenants.add_page(self._accounts[0])
        self._addresses = [tenants.Hostile(f"127.0.0.{number}") for number in range(2, addresses + 2)]
        self._up = {each.number: True for each in self._quiet.monitors}
        self._tree = stack.enter_context(Tree(os.environ, folder, counts={}))
        self._restarts = 0
        tenants.wait_for(lambda: readiness.web_answers(f"http://127.0.0.1:{port}"), RESTART_SEC)
        self._watch.begin(self._quiet)
        if why := self._calm(RESTART_SEC):
            raise SystemExit(f"not within {RESTART_SEC:g} s: {why}")

    def play(self, rows: Sequence[Row], level: int, *, seconds: float) -> Figures:
        """Play rows together for so many seconds, each with its part of `level` attackers. Return the figures."""
        from benchmarks.fairness import tenants

        with ExitStack() as stack:
            hostile = stack.enter_context(tenants.Process("benchmarks.fairness.targets", "hostile", nice=True))
            facts = self._facts(hostile.read())
            attacks = []
            for row in rows:
                same = [each for each in rows if each.by == row.by]
                attackers = self._attackers(row, level)[same.index(row) :: len(same)] or self._attackers(row, 1)
                self._equip(row, attackers, facts)
                attacks.append(
                    (row, attackers, stack.enter_context(tenants.Process("benchmarks.fairness.attacker", nice=True)))
                )
            for row, attackers, process in attacks:
                given = [{"address": each.address, "own": _for_attacker(each)} for each in attackers]
                front = {"port": self._front.port, "name": self._front.name}
                process.write({"row": row.name, "front": front, "attackers": given, "facts": facts})
            figures = self._measure(seconds)
            figures["answers"] = self._answers([process for *_, process in attacks])
        self._recover()
        return figures | {"restarts": self._restarts}

    def _attackers(self, row: Row, level: int) -> list[Hostile]:
        return (self._accounts if row.by == "accounts" else self._addresses)[:level]

    def _facts(self, ports: dict[str, int]) -> dict[str, Any]:
        from benchmarks.fairness import tenants

        shared = {each.kind: each.number for each in self._quiet.monitors if each.kind in ("udp", "dns")}
        heartbeat = tenants.Hostile("", self._accounts[0].user)
        tenants.add_monitors([heartbeat], [{"type": "heartbeat"}])
        return {
            "ports": ports,
            "quiet": self._ports,
            "shared": shared,
            "slug": tenants.SLUG,
            "locked": tenants.LOCKED_SLUG,
            "heartbeat": heartbeat.own["monitors"][0],
        }

    def _equip(self, row: Row, attackers: Sequence[Hostile], facts: dict[str, Any]) -> None:
        """Create what the row's accounts own."""
        from benchmarks.fairness import tenants
        from benchmarks.fairness.rows import monitor_of

        if channels := row.own.get("channels"):
            kind, count = channels
            tenants.add_channels(attackers, f"http://127.0.0.1:{facts['ports'][kind]}/hook", count)
        monitors = [*row.own.get("monitors", ()), *[("heartbeat", "")] * row.own.get("silent", 0)]
        if monitors:
            own = [monitor_of(kind, target, number, facts) for number, (kind, target) in enumerate(monitors)]
            tenants.add_monitors(attackers, own)
        if history := row.own.get("history"):
            tenants.add_history(attackers, history)
        if row.own.get("silent"):
            tenants.fall_silent(attackers, seconds=2.0)

    def _measure(self, seconds: float) -> Figures:
        from benchmarks.fairness import audit, tenants

        planned, after = audit.slots(self._quiet), audit.last_change()
        start = time.time()
        switches = self._switch(start, seconds)
        peak = self._wait(start + seconds)
        # A switch is stored within an interval (of a heartbeat: after its deadline), and announced, or it is too late.
        enough = tenants.INTERVAL_SEC + tenants.HEARTBEAT_SEC + tenants.GRACE_SEC + sum(LIMITS.values())
        latest = max(at for at, *_ in switches) + enough
        changes = audit.compare(self._quiet, switches, self._watch.seen(start).alerts, after=after, now=time.time())
        while (changes.missed or changes.waiting) and time.time() < latest:
            peak = max(peak, self._wait(time.time() + 0.5))
            changes = audit.compare(self._quiet, switches, self._watch.seen(start).alerts, after=after, now=time.time())
        checks = audit.lateness(planned, start, start + seconds)
        seen = self._watch.seen(start)
        figures = self._figures(checks, changes, seen, peak)
        broken = self._broken(checks, changes, seen)
        if broken:
            while time.time() < min(broken) + self._patience and not self._said(start, min(broken)):
                figures["web_peak_mib"] = max(figures["web_peak_mib"], round(self._wait(time.time() + 0.5), 1))
        figures["silent"] = sum(not self._said(start, at) for at in broken)
        for line in [*changes.false, *changes.missed][:10]:
            say(f"    {line}")
        return figures

    def _said(self, start: float, broken: float) -> bool:
        """Return whether /readyz said anything but `ready` before it had to, after a limit was broken."""
        return any(word != "ready" for at, word in self._watch.seen(start).ready if at <= broken + self._patience)

    def _switch(self, start: float, seconds: float) -> list[tuple[float, int, bool]]:
        """Switch targets and heartbeats at random in the first half."""
        switches = []
        for each in self._quiet.monitors:
            if each.switches:
                self._up[each.number] = not self._up[each.number]
                at = start + self._dice.uniform(0.5, max(1.0, seconds / 2))
                switches.append((at, each.number, self._up[each.number]))
        polled = {each.number: each.polled for each in self._quiet.monitors}
        self._targets.write([switch for switch in switches if polled[switch[1]]])
        self._watch.switch([switch for switch in switches if not polled[switch[1]]])
        return switches

    def _wait(self, until: float) -> float:
        """Wait, and return the peak of the memory of web. Start processes again that ended."""
        peak = 0.0
        while True:
            if ended := self._tree.ended():
                say(f"    {', '.join(ended)} ended: {self._tree.log(ended[0]).read_text()[-300:].strip()}")
                self._restarts += 1
                self._tree.start()
            with suppress(psutil.NoSuchProcess):
                pids = [member.pid for member in self._tree.members.values() if member.kind == "web" and member.pid]
                peak = max(peak, memory_mib({"web": pids}, shared=True)["web"])
            if (left := until - time.time()) <= 0:
                return peak
            time.sleep(min(0.2, left))

    def _figures(self, checks: Sequence[Sample], changes: Changes, seen: Seen, peak: float) -> Figures:
        found: Figures = {}
        for name, samples, factor, unit in (
            ("check_late", checks, 1, "s"),
            ("ping", seen.pings, 1000, "ms"),
            ("page", seen.pages, 1000, "ms"),
            ("alert", changes.alerts, 1, "s"),
        ):
            digits = 2 if unit == "s" else 0
            for word, percent in (("p99", 99), ("worst", 100)):
                found[f"{word}_{name}_{unit}"] = round(percentile(samples, percent) * factor, digits)
            found[f"{name}s"] = len(samples)
        return found | {
            "false_changes": len(changes.false),
            "missed_changes": len(changes.missed),
            "web_peak_mib": round(peak, 1),
        }

    def _broken(self, checks: Sequence[Sample], changes: Changes, seen: Seen) -> list[float]:
        """Return when each limit of time was broken first."""
        found = []
        for name, samples in (
            ("check_late", checks),
            ("ping", seen.pings),
            ("page", seen.pages),
            ("alert", changes.alerts),
        ):
            late = [sample.at + LIMITS[name] for sample in samples if sample.taken > LIMITS[name]]
            found += [min(late)] if late else []
        return found

    def _answers(self, processes: Sequence[Process]) -> dict[str, int]:
        """End the attacks. Return how many answers they got, by status. Raise SystemExit if one failed by itself."""
        counts: dict[str, int] = {}
        for process in processes:
            process.end_input()
            played = process.read(seconds=30) or {"counts": {}, "broken": []}
            if played["broken"]:
                raise SystemExit(f"an attack failed: {played['broken']}")
            for status, count in played["counts"].items():
                counts[status] = counts.get(status, 0) + count
        return counts

    def _recover(self) -> None:
        """Clear what the row left, and wait until all is as before. Otherwise start all processes again."""
        from benchmarks.fairness import tenants

        self._restarts = 0
        tenants.clear(self._quiet, self._grave, self._accounts)
        if not (why := self._calm(CALM_SEC)):
            return
        say(f"    started again: {why}")
        self._restarts = 1
        for name in self._tree.members:
            self._tree.kill(name)
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as broker:
            broker.flushall()
        tenants.clear(self._quiet, self._grave, self._accounts)
        tenants.spread(self._quiet.monitors)
        self._tree.start()
        if why := self._calm(RESTART_SEC):
            say(f"    still not as before: {why}")

    def _calm(self, seconds: float) -> str:
        """Wait until everything is served, on time and as the timetable has it. Return what is not."""
        from benchmarks.fairness import tenants

        reasons: list[str] = []

        def is_calm() -> bool:
            self._tree.start()
            reasons[:] = [*self._unanswered(), *tenants.unsettled(self._quiet, self._up)]
            return not reasons

        return "" if tenants.wait_for(is_calm, seconds) else ", ".join(reasons)

    def _unanswered(self) -> Iterator[str]:
        seen = self._watch.seen(time.time() - 3)
        if not seen.ready or seen.ready[-1][1] != "ready":
            yield "/readyz is not ready"
        for name, samples in (("ping", seen.pings), ("page", seen.pages)):
            if max((sample.taken for sample in samples), default=math.inf) > LIMITS[name]:
                yield f"{name}s are slow"


def _for_attacker(each: Hostile) -> dict[str, Any]:
    return {name: value for name, value in each.own.items() if name != "keys"}


@contextmanager
def proxied(name: str, folder: Path, port: int) -> Iterator[Front]:
    """Run a sample of deploy/ in front of web."""
    from tests.test_reverse_proxies import caddy

    place = folder / name
    place.mkdir(mode=0o755)
    folder.chmod(0o755)
    program = shutil.which(name, path=PATH)
    if program is None:
        raise SystemExit(f"{name} is not installed")
    certificate = trustme.CA().issue_cert(NAME)
    certificate.private_key_pem.write_to_path(str(place / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(place / "certificate.pem"))
    secure = free_port()
    start = {"nginx": nginx, "caddy": caddy}[name]
    with start(program, place, upstreams=(port, port), plain=free_port(), secure=secure):
        yield Front(secure, NAME)


def worst(figures: Sequence[Figures]) -> Figures:
    return {name: max((each[name] for each in figures), default=0) for name in (*WORST, *COUNTED)}


def is_within_limits(figures: Figures) -> bool:
    return bool(
        figures["worst_check_late_s"] <= LIMITS["check_late"]
        and figures["worst_ping_ms"] <= LIMITS["ping"] * 1000
        and figures["worst_page_ms"] <= LIMITS["page"] * 1000
        and figures["worst_alert_s"] <= LIMITS["alert"]
        and not figures["false_changes"]
        and not figures["missed_changes"]
        and figures["web_peak_mib"] <= web_limit_mib()
    )


def describe(name: str, level: int, found: Figures) -> str:
    said = " SILENT" if found["silent"] else ""
    return (
        f"{name:>14} x{level:<3} checks {found['p99_check_late_s']:5.1f} {found['worst_check_late_s']:5.1f} s"
        f"  pings {found['p99_ping_ms']:6.0f} {found['worst_ping_ms']:6.0f} ms"
        f"  pages {found['p99_page_ms']:6.0f} {found['worst_page_ms']:6.0f} ms"
        f"  alerts {found['p99_alert_s']:5.1f} {found['worst_alert_s']:5.1f} s"
        f"  false {found['false_changes']} missed {found['missed_changes']}  web {found['web_peak_mib']:.0f} MiB"
        f"  {'ok' if is_within_limits(found) else 'BROKEN'}{said}  {found['answers']}"
    )


def plan(rows: Sequence[str], levels: Sequence[int]) -> list[tuple[str, list[Row], int]]:
    """Return what is played in which order: names, rows and levels."""
    found: list[tuple[str, list[Row], int]] = [(QUIET, [], 0)] if 0 in levels else []
    for name in rows:
        if name == ALL:
            found.append((ALL, list(ROWS.values()), max(levels)))
        else:
            found += [(name, [ROWS[name]], level) for level in levels if level in LEVELS[ROWS[name].by]]
    return found


def run(arguments: argparse.Namespace) -> Figures:
    played = plan(arguments.rows, arguments.levels)
    most = max(level for *_, level in played)
    found: list[tuple[str, int, Figures]] = []
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-fair-") as folder, ExitStack() as stack:
        say("worst and 99th percentile of each; `make faults` has the same processes")
        neighbours = Neighbours(
            stack,
            Path(folder),
            arguments=arguments,
            accounts=most,
            addresses=min(most, max(LEVELS["addresses"])) or 1,
        )
        for name, rows, level in played:
            figures = neighbours.play(rows, level, seconds=arguments.seconds)
            found.append((name, level, figures))
            say(describe(name, level, figures))
    by_row = {
        name: worst([figures for *_, figures in group])
        | {"levels": {str(level): figures for _, level, figures in group}}
        for name, group in ((name, list(group)) for name, group in groupby(found, key=lambda one: one[0]))
    }
    total = worst([figures for *_, figures in found])
    return total | {"proxy": arguments.proxy, "seconds": arguments.seconds, "rows": by_row}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure whether a quiet tenant notices hostile ones.")
    parser.add_argument("--rows", help=f"comma-separated: {', '.join(ROWS)}, {ALL}; default: all of them")
    parser.add_argument("--levels", help="comma-separated, default: 0,1,10,100; addresses: at most 10")
    parser.add_argument("--seconds", type=float, help="of each row and level")
    parser.add_argument("--patience", type=float, help="seconds in which /readyz has to say what is wrong; default: 60")
    parser.add_argument("--proxy", choices=("nginx", "caddy"), help="run behind a sample of deploy/")
    parser.add_argument("--quick", action="store_true", help="few rows and seconds, for tests")
    given = parser.parse_args(words)
    quick = given.quick
    given.rows = given.rows.split(",") if given.rows else [*(QUICK_ROWS if quick else (*ROWS, ALL))]
    given.levels = (
        [int(level) for level in given.levels.split(",")]
        if given.levels
        else [*(QUICK_LEVELS if quick else (0, 1, 10, 100))]
    )
    given.patience = (QUICK_SECONDS if quick else SILENT_SEC) if given.patience is None else given.patience
    given.seconds = given.seconds or (QUICK_SECONDS if quick else SECONDS)
    if unknown := set(given.rows) - {*ROWS, ALL}:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    # On SIGTERM, exit through all `with` blocks, so that everything is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = run(parse(sys.argv[1:]))
    print(json.dumps(found))
    return 0 if is_within_limits(found) else 1


if __name__ == "__main__":
    sys.exit(main())
