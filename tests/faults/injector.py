"""Kill and restart processes by the script. Called from one thread only."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.script import Burst, Fault
from tests.faults.system import System

RECOVERY_SECONDS = 60  # limit for all processes to answer again


@dataclass(frozen=True)
class Event:
    """An action or observation, by the clock of this machine."""

    at: float
    text: str


class FaultInjector:
    def __init__(self, system: System) -> None:
        self._system = system
        self._tree = system.tree
        self._to_start: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.kills = 0
        self.replaced = 0

    def note(self, text: str) -> None:
        self.events.append(Event(time.time(), text))
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201

    def play(self, burst: Burst, *, start: float) -> None:
        """Inject all faults of the burst and restart everything that they stopped."""
        for fault in sorted(burst.faults, key=lambda fault: fault.at):
            self._tend(until=start + fault.at)
            self._inject(fault)
        self._tend(until=start + burst.end)
        while self._to_start:
            self._tend(until=self._to_start[0][0])

    def tend(self, seconds: float, *, enough: Callable[[], bool] = lambda: False) -> bool:
        """Restart what ends for `seconds`, or until `enough()`. Return whether `enough()` was true."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            self._tend(until=time.time() + 0.2)
            if enough():
                return True
        return False

    def _tend(self, *, until: float) -> None:
        """Start what is due to start and restart what ended, as a supervisor does."""
        while True:
            now = time.time()
            while self._to_start and self._to_start[0][0] <= now:
                _, name = heapq.heappop(self._to_start)
                self._start(name, now)
            for name in self._tree.ended():
                self.note(f"{name} ended unexpectedly: {_last_line(self._tree.log(name))}")
                heapq.heappush(self._to_start, (now + 0.5, name))
            if now >= until:
                return
            time.sleep(min(0.1, until - now))

    def _start(self, name: str, now: float) -> None:
        hosts = self._system.hosts
        if name in hosts:
            hosts[name].power_on()
            self.note(f"restored {name}")
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

    def _inject(self, fault: Fault) -> None:
        if fault.victim in self._system.servers:
            if self._system.kill_server(fault.victim):
                self.kills += 1
                self.note(f"killed {fault.victim}")
            return
        if fault.victim in self._system.hosts:
            self._kill_host(fault)
            return
        if self._tree.members[fault.victim].process is None:
            return  # an earlier fault stopped it
        if fault.action == "terminate":
            self._terminate(fault.victim)
        elif fault.action == "replace":
            if not self._terminate(fault.victim):
                self.kills += 1
            self._system.upgrade(fault.victim)
            self.replaced += 1
        else:
            self._tree.kill(fault.victim)
            self.kills += 1
            self.note(f"killed {fault.victim}")
        heapq.heappush(self._to_start, (time.time() + fault.restart_after, fault.victim))

    def _terminate(self, name: str) -> bool:
        """Return whether it ended in time."""
        in_time = self._tree.terminate(name)
        self.note(f"terminated {name}{'' if in_time else '; it did not end in time and was killed'}")
        return in_time

    def _kill_host(self, fault: Fault) -> None:
        """Simulate a power failure: peers see no closed connections."""
        host = self._system.hosts[fault.victim]
        if not host.up:
            return
        host.disconnect()
        for name in self._on(fault.victim):
            if self._tree.members[name].process is not None:
                self._tree.kill(name)
        host.power_off()
        self.kills += 1
        self.note(f"killed {fault.victim} and all its processes")
        heapq.heappush(self._to_start, (time.time() + fault.restart_after, fault.victim))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
