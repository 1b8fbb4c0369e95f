"""Bounded waits on conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.3


def until(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Wait until the condition is true, and return its value. The interval between evaluations grows.

    Most conditions are requests, which take processor time from the awaited process.
    """
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(min(max(SHORTEST_PAUSE, waited / 10), LONGEST_PAUSE))
    return value


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Return living processes that use `data_dir`, by command line, environment or open files."""
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
