"""Run one engine in its own process, so that its memory and CPU are measured alone.

A `Job` is the argument, as JSON. Then each line on standard input is a number of checks to make, and each line on
standard output a `Round`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.probing.ways import WAYS, Job

ROOT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """`seconds` until the last counted response, and the largest memory since the start and since it was ready."""

    cpu_seconds: float
    seconds: float
    peak_kib: int
    grown_kib: int


class Worker:
    """The process, as its parent sees it. A context manager."""

    def __init__(self, job: Job) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.probing.worker", json.dumps(asdict(job))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, trace)

    def run(self, checks: int) -> Round:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{checks}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A worker process ended; its reason stands above.")
        return Round(**json.loads(line))


def _cpu_seconds(pid: int) -> float:
    """Return user and system time of a process with all threads. For another process, to the tick (usually 10 ms)."""
    if pid == os.getpid():
        return time.process_time()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    pid = job.pid or os.getpid()
    way = WAYS[job.way](job)
    ready = _memory_kib(pid, "VmRSS")
    for line in sys.stdin:
        cpu = _cpu_seconds(pid)
        seconds = way(int(line))
        cpu = _cpu_seconds(pid) - cpu
        peak = _memory_kib(pid, "VmHWM")
        print(json.dumps(asdict(Round(cpu, seconds, peak, peak - ready))), flush=True)


if __name__ == "__main__":
    main()
