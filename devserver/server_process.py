"""Common parts of both servers: start, readiness, stop and log."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from devserver.data_folder import DataFolder
from devserver.locks import EmbeddedError
from devserver.server_user import ServerUser

LOG_LIMIT = 10 * 1024 * 1024
# Signals and the seconds to wait after each. For PostgreSQL: fast shutdown, then immediate shutdown.
STOP_STEPS = {
    "postgres": ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0)),
    "valkey": ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)),
}


def find_ours(pid: int, data: Path) -> psutil.Process | None:
    """Return the process `pid` if it is a server of `data`, as pids are reused."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline():
            return process
    except psutil.Error:
        pass
    return None


def stop_orphan(pid: int, data: Path) -> None:
    """Stop a server whose supervisor was killed, and which is not our child."""
    for number, seconds in STOP_STEPS[data.name]:
        deadline = time.monotonic() + seconds
        process = find_ours(pid, data)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        # Not process.wait(): without a reaping init process in a container, the process stays a zombie.
        while find_ours(pid, data) is not None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return


class Server:
    """A server of a data folder. The supervisor starts, watches and stops it."""

    name: str
    """The name of the data, of the log and in STOP_STEPS."""
    title: str
    start_seconds: float

    def __init__(self, folder: DataFolder, user: ServerUser, settings: Mapping[str, str]) -> None:
        self._user = user
        self._settings = settings
        self._data = folder.root / self.name
        self._log = folder.log(self.name)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready. Raises EmbeddedError."""
        raise NotImplementedError

    def state(self) -> dict[str, object]:
        """Return what other processes must know: the pid, and how to connect."""
        return {"pid": self._process.pid if self._process else None}

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process is None:
            return
        for number, seconds in STOP_STEPS[self.name]:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                return

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _run(self, command: Sequence[str], *, config: str = "") -> str | None:
        """Start the command with `config` on its stdin. Return None when it is ready, or why it ended.

        Raises EmbeddedError if it takes too long.
        """
        if self._log.exists() and self._log.stat().st_size > LOG_LIMIT:
            self._log.replace(self._log.with_suffix(".log.1"))
        with self._log.open("ab") as log:
            offset = log.tell()
            self._process = self._user.start(command, output=log, stdin=subprocess.PIPE)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(config.encode())
        deadline = time.monotonic() + self.start_seconds
        while not self._is_ready():
            if self._process.poll() is not None:
                return self._last_error(offset)
            if time.monotonic() > deadline:
                self.stop()
                raise EmbeddedError(f"{self.title} was not ready within {self.start_seconds} s: see {self._log}")
            time.sleep(0.02)
        return None

    def _exited(self, reason: str) -> EmbeddedError:
        return EmbeddedError(f"{self.title} exited at its start: {reason} ({self._log})")

    def _last_error(self, since: int) -> str:
        """Return the line of the log that best explains why a server ended."""
        with self._log.open("rb") as file:
            file.seek(since)
            lines = file.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "FATAL" in line or "PANIC" in line or "rror" in line]
        return (errors or lines or ["no output"])[-1].strip()
