"""What PostgreSQL and Valkey have in common as processes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

Steps = Sequence[tuple[signal.Signals, float]]

# Signals with the seconds each may take. For PostgreSQL its fast shutdown, then its immediate one.
POSTGRES_STOP: Steps = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))
VALKEY_STOP: Steps = ((signal.SIGTERM, 3.0),)
LAST_STEP = (signal.SIGKILL, 5.0)
LOG_LIMIT = 10 * 1024 * 1024


def find_ours(pid: int, data: Path) -> psutil.Process | None:
    """The process `pid` if it is a server of `data`. A pid from a file may be anybody's by now."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline():
            return process
    except psutil.Error:
        pass
    return None


def stop(process: subprocess.Popen[bytes], steps: Steps) -> None:
    """Send one signal after the other, each with its seconds to work, until the process is gone."""
    for number, seconds in [*steps, LAST_STEP]:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def stop_orphan(pid: int, data: Path, steps: Steps) -> None:
    """The same for a server that is not our child: its keeper was killed, and nobody would watch it."""
    for number, seconds in [*steps, LAST_STEP]:
        deadline = time.monotonic() + seconds
        process = find_ours(pid, data)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        # Not process.wait(): in a container whose first process reaps nobody, the dead stay as zombies.
        while find_ours(pid, data) is not None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return


def trim(log: Path) -> None:
    """Keep one predecessor of a log that has grown: these servers have no logrotate."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))


def last_words(log: Path, since: int) -> str:
    """The line of a server's log that says best why it ended."""
    with log.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").strip().splitlines()
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line or "rror" in line]
    return (telling or lines or ["it said nothing"])[-1].strip()
