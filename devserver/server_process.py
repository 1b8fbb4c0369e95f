"""Helpers to stop server processes and read their logs."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

Steps = Sequence[tuple[signal.Signals, float]]

# Signals and the seconds to wait after each. For PostgreSQL: fast shutdown, then immediate shutdown.
POSTGRES_STOP: Steps = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))
VALKEY_STOP: Steps = ((signal.SIGTERM, 3.0),)
LAST_STEP = (signal.SIGKILL, 5.0)
LOG_LIMIT = 10 * 1024 * 1024


def find_ours(pid: int, data: Path) -> psutil.Process | None:
    """Return the process `pid` if it is a server of `data`, as pids are reused."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline():
            return process
    except psutil.Error:
        pass
    return None


def stop(process: subprocess.Popen[bytes], steps: Steps) -> None:
    """Send one signal after the other until the process ends."""
    for number, seconds in [*steps, LAST_STEP]:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def stop_orphan(pid: int, data: Path, steps: Steps) -> None:
    """Stop a server whose supervisor was killed, and which is not our child."""
    for number, seconds in [*steps, LAST_STEP]:
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


def rotate(log: Path) -> None:
    """Rotate a large log and keep one old file."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))


def last_error(log: Path, since: int) -> str:
    """Return the line of the log that best explains why a server ended."""
    with log.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "FATAL" in line or "PANIC" in line or "rror" in line]
    return (errors or lines or ["no output"])[-1].strip()
