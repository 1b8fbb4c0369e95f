"""What processes use: CPU by kind, also that of children which have ended, and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import psutil

Roots = Callable[[], Mapping[str, list[int]]]  # by kind, the pids whose descendants count with them


def cpu_seconds(roots: Mapping[str, list[int]]) -> dict[str, float]:
    """User and system time so far, by kind: of each process and descendant, and of what they have reaped."""
    return {kind: sum(_cpu(process) for process in _family(pids)) for kind, pids in roots.items()}


def busy_seconds() -> float:
    """Of all cores together so far, whoever used them."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def memory_mib(roots: Mapping[str, list[int]], *, shared: bool) -> dict[str, float]:
    """Resident memory by kind: each process with all it shares (RSS), or with its part of that (PSS)."""
    found = {}
    for kind, pids in roots.items():
        size = 0
        for process in _family(pids):
            with contextlib.suppress(psutil.NoSuchProcess):
                size += process.memory_info().rss if shared else process.memory_full_info().pss
        found[kind] = size / 2**20
    return found


def _family(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        process = psutil.Process(pid)
        found += [process, *process.children(recursive=True)]
    return found


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0  # reaped meanwhile: what it used is its parent's by the next look
    return float(times.user + times.system + times.children_user + times.children_system)
