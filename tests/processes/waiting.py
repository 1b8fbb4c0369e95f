"""Bounded waits on conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float, what: str) -> T:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return value


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Living processes that belong to `data_dir`, by command line, environment or open files."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), process.environ().get("DATA_DIR", "")]
            if any(str(data_dir) in word for word in words):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, PermissionError):
            continue
    return found
