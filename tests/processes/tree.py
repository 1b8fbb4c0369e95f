"""Run the processes of the Procfile so that tests can kill and restart them.

The process manager of `up` would give up on processes that keep dying, and runs one of each kind. The Procfile is read
here too, so that tests and deployments run the same commands.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from honcho.environ import parse_procfile

from core.parent_death import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 10


@dataclass(frozen=True)
class Place:
    """Where processes run: folder of the code, interpreter, command prefix and variables.

    `before` is a prefix such as `ip netns exec …` or `setpriv …`. It must not fork. `kinds` are all if None.
    """

    root: Path = ROOT
    programs: Path = Path(sys.executable).parent
    before: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] | None = None


@dataclass
class Member:
    """One process of the tree. `process` is None while it is not running. `number` counts its kind in all places."""

    kind: str
    number: int
    place: Place
    process: subprocess.Popen[bytes] | None = None
    started_at: float = field(default=0.0)
    own_command: str | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def command(self) -> str:
        """Return its command, or that of the Procfile with a unique node name."""
        if self.own_command is not None:
            return self.own_command
        line = parse_procfile((self.place.root / "Procfile").read_text()).processes[self.kind]
        return re.sub(r"--hostname (\w+)@", rf"--hostname \1-{self.number}@", line)

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid


class Tree:
    """A process tree. Use it from one thread that outlives it: children are killed when that thread ends."""

    def __init__(
        self,
        environment: Mapping[str, str],
        logs: Path,
        *,
        counts: Mapping[str, int],
        places: Sequence[Place] = (Place(),),
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`counts` is the number of processes per kind and place; the default is one.

        `others` are the commands of kinds that the Procfile lacks, which run in the first place.
        """
        self._environment = environment
        self._logs = logs
        self.members: dict[str, Member] = {}
        numbers: Counter[str] = Counter()
        for kind, command in others.items():
            for number in range(1, counts.get(kind, 1) + 1):
                member = Member(kind, number, places[0], own_command=command)
                self.members[member.name] = member
        for place in places:
            for kind in parse_procfile((place.root / "Procfile").read_text()).processes:
                for _ in range(counts.get(kind, 1) if place.kinds is None or kind in place.kinds else 0):
                    numbers[kind] += 1
                    member = Member(kind, numbers[kind], place)
                    self.members[member.name] = member

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes that are not running."""
        for member in self.members.values():
            if member.process is None:
                self.start_one(member.name)

    def start_one(self, name: str) -> None:
        member = self.members[name]
        assert member.process is None
        place = member.place
        path = f"{place.programs}{os.pathsep}{self._environment.get('PATH', os.defpath)}"
        with self.log(name).open("ab") as log:
            member.process = subprocess.Popen(
                [*place.before, "/bin/sh", "-c", member.command],
                cwd=place.root,
                env={**self._environment, **place.variables, "PATH": path, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its group can be killed
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        member.started_at = time.monotonic()

    def kill(self, name: str) -> None:
        """Kill it and all its descendants."""
        member = self.members[name]
        assert member.process is not None
        # Its group has its pid, which remains valid until it is reaped.
        os.killpg(member.process.pid, signal.SIGKILL)
        member.process.wait()
        member.process = None

    def terminate(self, name: str) -> bool:
        """Terminate it, as a deployment does. Return whether it ended in time."""
        member = self.members[name]
        assert member.process is not None
        self._terminate(member.process)
        in_time = self._ended(member.process, time.monotonic() + STOP_SECONDS)
        self.kill(name)
        return in_time

    def ended(self) -> list[str]:
        """Return processes that ended unexpectedly, after killing their descendants. `start` restarts them."""
        found = []
        for member in self.members.values():
            if member.process is not None and self._ended(member.process, time.monotonic()):
                self.kill(member.name)
                found.append(member.name)
        return found

    def stop(self) -> None:
        running = [member for member in self.members.values() if member.process is not None]
        for member in running:
            assert member.process is not None
            self._terminate(member.process)
        deadline = time.monotonic() + STOP_SECONDS
        for member in running:
            assert member.process is not None
            self._ended(member.process, deadline)
            self.kill(member.name)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    @staticmethod
    def _terminate(process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGTERM)  # Popen.terminate would reap it if it has ended

    @staticmethod
    def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for its end without reaping it, so that its group can still be killed."""
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, process.pid, options) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True
