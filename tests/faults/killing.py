"""Does away with processes as the script says, and sees that they come back. Called from one thread only."""

from __future__ import annotations

import contextlib
import heapq
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from config.embedded.session import server_pids
from tests.faults.script import SERVERS, Blow, Bout
from tests.processes.tree import Tree

RECOVERY_SECONDS = 60  # the longest that processes may take to answer again


@dataclass(frozen=True)
class Event:
    """Something that was done, or seen, by the clock of this machine."""

    at: float
    text: str


class Killer:
    def __init__(self, tree: Tree, data_dir: Path) -> None:
        self._tree = tree
        self._data_dir = data_dir
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
                self._tree.start_one(name)
                self.note(f"started {name}")
            for name in self._tree.ended():
                self.note(f"{name} ended by itself: {_last_line(self._tree.log(name))}")
                heapq.heappush(self._to_start, (now + 0.5, name))
            if now >= until:
                return
            time.sleep(min(0.1, until - now))

    def _strike(self, blow: Blow) -> None:
        if blow.victim in SERVERS:
            self._kill_server(blow.victim)
            return
        if self._tree.members[blow.victim].process is None:
            return  # down already, by an earlier blow
        if blow.way == "terminate":
            in_time = self._tree.terminate(blow.victim)
            self.note(f"terminated {blow.victim}{'' if in_time else ', which did not end and was killed'}")
        else:
            self._tree.kill(blow.victim)
            self.kills += 1
            self.note(f"killed {blow.victim}")
        heapq.heappush(self._to_start, (time.time() + blow.back_after, blow.victim))

    def _kill_server(self, name: str) -> None:
        """With all its children; their keeper starts it again, on the same folder and address."""
        pid = (server_pids(self._data_dir) or {}).get(name)
        if not isinstance(pid, int):
            raise SystemExit("the keeper of the servers has ended")
        with contextlib.suppress(psutil.NoSuchProcess):  # killed a moment ago, and not started yet
            server = psutil.Process(pid)
            for process in [server, *server.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.kills += 1
            self.note(f"killed {name}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
