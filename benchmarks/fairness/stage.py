"""A running Pulsekeeper with its tenants, and how a row is played on it. Import it after Django is set up."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import redis
import trustme

from accounts.services import create_account
from benchmarks.fairness import audit, tenants
from benchmarks.fairness.client import Front
from benchmarks.fairness.figures import LIMITS, Figures, Observed
from benchmarks.fairness.rows import Row
from benchmarks.fairness.tenants import Hostile, Process, Watched
from benchmarks.fairness.watching import Watch
from benchmarks.load.usage import memory_mib
from devserver import readiness
from tests.processes.tree import Tree
from tests.processes.up import free_port
from tests.proxies import NAME, PROXIES, find_program

CALM_SEC, RESTART_SEC = 80.0, 180.0
"""`/readyz` is degraded for a minute after a late request."""
FINE = ("ready", "degraded")
SLOW = 4
"""How many times a limit may be exceeded between rows; a busy machine alone does not justify a restart."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Stage:
    """`patience`: how long /readyz may stay `ready` after a limit was exceeded."""

    def __init__(
        self, stack: ExitStack, folder: Path, *, proxy: str | None, accounts: int, addresses: int, patience: float
    ) -> None:
        self._dice, self._patience, self._restarts = random.Random(26), patience, 0
        direct = Front(int(os.environ["PORT"]))
        self._front = stack.enter_context(proxied(proxy, folder, direct.port)) if proxy else direct
        count = sum(tenants.MIX.values())
        targets = Process("benchmarks.fairness.targets", "quiet", str(folder), str(count))
        self._targets = stack.enter_context(targets)
        self._ports = self._targets.read()
        self._watch = stack.enter_context(Watch(self._front, direct))
        self._quiet = tenants.make_quiet(self._ports, self._watch.url)
        self._grave = create_account(email="grave@example.com", password=None)
        self._accounts = tenants.make_hostile(accounts)
        tenants.add_page(self._accounts[0])
        self._addresses = [Hostile(f"127.0.0.{number}") for number in range(2, addresses + 2)]
        self._up = {each.number: True for each in self._quiet.monitors}
        self._tree = stack.enter_context(Tree(os.environ, folder, counts={}))
        tenants.wait_for(lambda: readiness.web_answers(f"http://127.0.0.1:{direct.port}"), RESTART_SEC)
        self._watch.begin(self._quiet)
        # On a busy machine it may be degraded all the time.
        why = self._calm(RESTART_SEC, ready=FINE)
        if not why:
            # Half of them are down when a row begins, so that each row sees some of each kind go down and some go up.
            self._switch(self._quiet.switching[::2], time.time(), 1.0)
            why = self._calm(RESTART_SEC, ready=FINE)
        if why:
            raise SystemExit(f"not within {RESTART_SEC:g} s: {why}")

    def play(self, rows: Sequence[Row], level: int, *, seconds: float) -> Figures:
        """Play rows together for `seconds`, each with its part of `level` attackers. Return the figures."""
        self._restarts = 0
        with ExitStack() as stack:
            hostile = stack.enter_context(Process("benchmarks.fairness.targets", "hostile", nice=True))
            facts = self._facts(hostile.read())
            played: list[tuple[Row, list[Hostile], Process]] = []
            for row in rows:
                alike = [each for each in rows if each.by == row.by]
                everyone = (self._accounts if row.by == "accounts" else self._addresses)[:level]
                attackers = everyone[alike.index(row) :: len(alike)] or everyone[:1]
                played.append((row, attackers, stack.enter_context(Process("benchmarks.fairness.attacker", nice=True))))
            for row, attackers, _ in played:
                tenants.equip(row, attackers, facts)
            for row, attackers, process in played:
                given = [{"address": each.address, "own": each.own} for each in attackers]
                front = {"port": self._front.port, "name": self._front.name}
                process.write({"row": row.name, "front": front, "attackers": given, "facts": facts})
            for *_, process in played:
                process.read()  # it has begun
            figures = self._measure(seconds)
            figures["answers"] = answers([process for *_, process in played])
        self._recover()
        return figures | {"restarts": self._restarts}

    def _facts(self, ports: dict[str, int]) -> dict[str, Any]:
        """Return what all attackers know."""
        owner = Hostile("", self._accounts[0].user)
        tenants.add_monitors([owner], [{"type": "heartbeat"}])
        return {
            "ports": ports,
            "quiet": self._ports,
            "shared": {each.kind: each.number for each in self._quiet.monitors if each.kind in ("udp", "dns")},
            "slug": tenants.SLUG,
            "locked": tenants.LOCKED_SLUG,
            "heartbeat": owner.own["monitors"][0],
        }

    def _measure(self, seconds: float) -> Figures:
        planned, after = audit.slots(self._quiet), audit.last_change()
        start = time.time()
        switches = self._switch(self._quiet.switching, start, seconds)
        peak = self._wait(start + seconds)

        def changes() -> audit.Changes:
            alerts = self._watch.seen(start).alerts
            return audit.compare(self._quiet, switches, alerts, after=after, now=time.time())

        # A switch is stored within an interval, or after a deadline, and announced; or it is too late.
        last = max(at for at, *_ in switches)
        latest = last + tenants.INTERVAL_SEC + tenants.HEARTBEAT_SEC + tenants.GRACE_SEC + sum(LIMITS.values())
        while not (found := changes()).are_complete and time.time() < latest:
            peak = max(peak, self._wait(time.time() + 0.5))
        seen, checks = self._watch.seen(start), audit.lateness(planned, start, start + seconds)
        samples = {"check": checks, "ping": seen.pings, "page": seen.pages, "alert": found.alerts}
        observed = Observed(samples, found.false, found.missed)
        broken = list(observed.broken())
        silent = broken
        while silent := [at for at in silent if not self._said(start, at)]:
            if time.time() > min(broken) + self._patience:
                break
            peak = max(peak, self._wait(time.time() + 0.5))
        for line in [*observed.false, *observed.missed, *observed.describe_late()][:10]:
            say(f"    {line}")
        return observed.figures() | {"web_peak_mib": round(peak, 1), "silent": len(silent)}

    def _said(self, start: float, broken: float) -> bool:
        """Return whether /readyz left `ready` within its patience after a limit was exceeded."""
        return any(word != "ready" for at, word in self._watch.seen(start).ready if at <= broken + self._patience)

    def _switch(self, chosen: Sequence[Watched], start: float, seconds: float) -> list[audit.Switch]:
        """Switch targets and the jobs of heartbeats at random times of the first half."""
        switches = []
        for each in chosen:
            self._up[each.number] = not self._up[each.number]
            at = start + self._dice.uniform(0.5, max(1.0, seconds / 2))
            switches.append((at, each.number, self._up[each.number]))
        self._targets.write(switches)
        self._watch.switch(switches)
        return switches

    def _wait(self, until: float) -> float:
        """Wait, and return the peak memory of web. Restart processes that ended."""
        peak = 0.0
        while True:
            if ended := self._tree.ended():
                say(f"    {', '.join(ended)} ended: {self._tree.log(ended[0]).read_text()[-300:].strip()}")
                self._restarts += 1
                self._tree.start()
            pids = [member.pid for member in self._tree.members.values() if member.kind == "web" and member.pid]
            with suppress(psutil.NoSuchProcess):
                peak = max(peak, memory_mib({"web": pids}, shared=True)["web"])
            if (left := until - time.time()) <= 0:
                return peak
            time.sleep(min(0.2, left))

    def _recover(self) -> None:
        """Clear the rows, and wait until everything is as before. If that takes too long, restart all processes."""
        tenants.clear(self._quiet, self._grave, self._accounts)
        if not self._calm(CALM_SEC) or not (why := self._calm(1.0, ready=FINE)):
            return
        say(f"    started again: {why}")
        self._restarts += 1
        for name in self._tree.members:
            self._tree.kill(name)
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as broker:
            broker.flushall()
        tenants.clear(self._quiet, self._grave, self._accounts)
        tenants.spread(self._quiet.monitors)
        self._tree.start()
        if why := self._calm(RESTART_SEC, ready=FINE):
            say(f"    still not as before: {why}")

    def _calm(self, seconds: float, *, ready: Container[str] = ("ready",)) -> str:
        """Wait until everything is served on time and matches the timetable. Return what does not."""
        reasons: list[str] = []

        def is_calm() -> bool:
            self._tree.ended()
            self._tree.start()
            reasons[:] = self._slow(ready)
            if not reasons:
                reasons[:] = tenants.unsettled(self._quiet, self._up)
            if reasons:
                self._watch.ping_all(self._quiet)  # some may have lost the ping of this minute
            return not reasons

        return "" if tenants.wait_for(is_calm, seconds) else ", ".join(reasons)

    def _slow(self, ready: Container[str]) -> Iterator[str]:
        seen = self._watch.seen(time.time() - 3)
        if not seen.ready or seen.ready[-1][1] not in ready:
            yield "/readyz is not ready"
        for kind, samples in (("ping", seen.pings), ("page", seen.pages)):
            if not samples or max(sample.taken for sample in samples) > SLOW * LIMITS[kind]:
                yield f"{kind}s are slow"


def answers(processes: Sequence[Process]) -> dict[str, int]:
    """End the attacks. Return the number of their answers by status. Raise SystemExit if an attacker failed."""
    counts: dict[str, int] = {}
    for process in processes:
        process.end_input()
    for process in processes:
        played = process.read() or {"counts": {}, "broken": []}
        if played["broken"]:
            raise SystemExit(f"an attack failed: {played['broken']}")
        for status, count in played["counts"].items():
            counts[status] = counts.get(status, 0) + count
    return counts


@contextmanager
def proxied(name: str, folder: Path, port: int) -> Iterator[Front]:
    """Run a sample of deploy/ in front of web."""
    program = find_program(name)
    if program is None:
        raise SystemExit(f"{name} is not installed")
    place = folder / name
    place.mkdir()
    certificate = trustme.CA().issue_cert(NAME)
    certificate.private_key_pem.write_to_path(str(place / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(place / "certificate.pem"))
    secure = free_port()
    with PROXIES[name](program, place, upstreams=(port, port), plain=free_port(), secure=secure):
        yield Front(secure, NAME)
