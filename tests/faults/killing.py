"""Does away with processes as the script says, and sees that they come back. Called from one thread only."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.script import SERVERS, Blow, Bout
from tests.faults.system import System

RECOVERY_SECONDS = 60  # the longest that processes may take to answer again


@dataclass(frozen=True)
class Event:
    """Something that was done, or seen, by the clock of this machine."""

    at: float
    text: str


class Killer:
    def __init__(self, system: System) -> None:
        self._system = system
        self._tree = system.tree
        self._to_start: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.kills = 0

    def note(self, text: str) -> None:
        self.events.append(Event(time.time(), text))
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201

    def play(self, bout: Bout, *, start: float) -> None:
        """All blows of the bout, and all that they felled running again."""
        for blow in sorted(bout.blows, key=lambda blow: blow.at):
            self._tend(until=start + blow.at)
            self._strike(blow)
        self._tend(until=start + bout.end)
        while self._to_start:
            self._tend(until=self._to_start[0][0])

    def tend(self, seconds: float, *, enough: Callable[[], bool] = lambda: False) -> bool:
        """Look after the tree for so long, or until it is `enough`; whether it was."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            self._tend(until=time.time() + 0.2)
            if enough():
                return True
        return False

    def _tend(self, *, until: float) -> None:
        """Start what is due to start, and what ended unasked, as a supervisor does."""
        while True:
            now = time.time()
            while self._to_start and self._to_start[0][0] <= now:
                _, name = heapq.heappop(self._to_start)
                self._start(name, now)
            for name in self._tree.ended():
                self.note(f"{name} ended by itself: {_last_line(self._tree.log(name))}")
                heapq.heappush(self._to_start, (now + 0.5, name))
            if now >= until:
                return
            time.sleep(min(0.1, until - now))

    def _start(self, name: str, now: float) -> None:
        hosts = self._system.hosts
        if name in hosts:
            hosts[name].rise()
            self.note(f"{name} is back")
            waiting = {waiting for _, waiting in self._to_start}
            for member in self._on(name):
                if member not in waiting:
                    self._tree.start_one(member)
            return
        host = self._system.host_of(name)
        if host is not None and not hosts[host].up:
            heapq.heappush(self._to_start, (now + 0.5, name))
            return
        self._tree.start_one(name)
        self.note(f"started {name}")

    def _on(self, host: str) -> list[str]:
        return [name for name in self._tree.members if self._system.host_of(name) == host]

    def _strike(self, blow: Blow) -> None:
        if blow.victim in SERVERS:
            if self._system.kill_server(blow.victim):
                self.kills += 1
                self.note(f"killed {blow.victim}")
            return
        if blow.victim in self._system.hosts:
            self._kill_host(blow)
            return
        if blow.way == "renew":
            self._renew(blow.victim)
            return
        if self._tree.members[blow.victim].process is None:
            return  # down already, by an earlier blow
        if blow.way == "terminate":
            self._terminate(blow.victim)
        else:
            self._tree.kill(blow.victim)
            self.kills += 1
            self.note(f"killed {blow.victim}")
        heapq.heappush(self._to_start, (time.time() + blow.back_after, blow.victim))

    def _terminate(self, name: str) -> None:
        in_time = self._tree.terminate(name)
        self.note(f"terminated {name}{'' if in_time else ', which did not end and was killed'}")

    def _renew(self, name: str) -> None:
        """Killed a moment ago it is started in its time, as the next version."""
        if self._tree.members[name].process is not None:
            self._terminate(name)
            heapq.heappush(self._to_start, (time.time(), name))
        self._system.renew(name)
        self.note(f"{name} is of the next version from now on")

    def _kill_host(self, blow: Blow) -> None:
        """As by a cut of power: nobody is told that its connections are gone."""
        host = self._system.hosts[blow.victim]
        if not host.up:
            return
        host.cut_off()
        for name in self._on(blow.victim):
            if self._tree.members[name].process is not None:
                self._tree.kill(name)
        host.fall()
        self.kills += 1
        self.note(f"killed {blow.victim} with all that ran on it")
        heapq.heappush(self._to_start, (time.time() + blow.back_after, blow.victim))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
