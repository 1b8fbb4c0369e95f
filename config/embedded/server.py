"""What PostgreSQL and Valkey have in common as processes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

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


def stop(
    process: psutil.Process | subprocess.Popen[bytes], steps: Sequence[tuple[signal.Signals, float]]
) -> None:
    """Send one signal after the other, each with its seconds to work, until the process is gone."""
    for number, seconds in [*steps, (signal.SIGKILL, 5)]:
        try:
            process.send_signal(number)
            process.wait(seconds)
        except psutil.NoSuchProcess:
            return
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            continue
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
