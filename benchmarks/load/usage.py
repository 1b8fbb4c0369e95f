"""Measure resources of processes: CPU by kind, including ended children, and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import psutil

Roots = Callable[[], Mapping[str, list[int]]]  # kind to pids; their descendants are counted too


def cpu_seconds(roots: Mapping[str, list[int]]) -> dict[str, float]:
    """Return user and system time by kind, of each process, its descendants, and their ended children."""
    return {kind: sum(_cpu(process) for process in _family(pids)) for kind, pids in roots.items()}


def busy_seconds() -> float:
    """Return the CPU seconds of all processes of the machine."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def memory_mib(roots: Mapping[str, list[int]], *, shared: bool) -> dict[str, float]:
    """Return resident memory by kind, with all shared memory (RSS) or with each process's part (PSS)."""
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
        return 0.0  # it has ended; its parent includes it next time
    return float(times.user + times.system + times.children_user + times.children_system)
