"""Send one request at a time to a running web server, and measure what it costs."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

PATIENCE_SEC = 40.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Input:
    """A raw request. `who` is charged for it: a stranger, or a tenant."""

    who: str
    name: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of the web process and of PostgreSQL's, and memory of the web process."""

    cpu_ms: float
    database_ms: float
    grown_mib: float
    status: int  # 0: no answer
    answer_bytes: int


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, in nanoseconds' precision (clock_getcpuclockid of Linux)."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


class Meter:
    """Measures requests to the web server of `web_pid`, whose database is the process `postgres_pid`."""

    def __init__(self, address: str, *, web_pid: int, postgres_pid: int) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self._place = (parts.hostname, parts.port)
        # Granian's worker process; the first child of a spawned process may be Python's resource tracker.
        below = psutil.Process(web_pid).children(recursive=True)
        self._web = max(below, key=lambda process: process.memory_info().rss).pid
        self._postgres = psutil.Process(postgres_pid)
        self._backends: list[int] = []
        self._status = Path(f"/proc/{self._web}/status")
        self._clear = Path(f"/proc/{self._web}/clear_refs")
        self._sent = 0

    def cost(self, given: Input) -> Cost:
        """Send the input, read the whole answer, and return what it cost."""
        if self._sent % 100 == 0:
            self._backends = [process.pid for process in self._postgres.children()]
        self._sent += 1
        self._clear.write_text("5")  # VmHWM starts from here
        rss = self._kib("VmRSS")
        web, database = cpu_seconds(self._web), sum(map(cpu_seconds, self._backends))
        status, size = self._send(given.raw)
        web, database = cpu_seconds(self._web) - web, sum(map(cpu_seconds, self._backends)) - database
        grown = (self._kib("VmHWM") - rss) / 1024
        return Cost(web * 1000, database * 1000, grown, status, size)

    def memory_mib(self, given: Input) -> float:
        """Return the peak of what the request allocated: by Python's count or by the growth of the process."""
        peaks = []
        for trace in (1, 0):
            self._ask(f"/-/begin?trace={trace}")
            self._send(given.raw)
            peaks.append(self._ask("/-/end"))
        return float(max(peaks[0]["traced"], peaks[1]["grown"])) / MIB

    def _ask(self, path: str) -> Any:
        _, _, body = self._exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return json.loads(body)

    def _send(self, raw: bytes) -> tuple[int, int]:
        status, size, _ = self._exchange(raw, keep=False)
        return status, size

    def _exchange(self, raw: bytes, *, keep: bool = True) -> tuple[int, int, bytes]:
        """Return the status, the length of the response, and its body if `keep`; reading it is not part of the cost."""
        head, size = b"", 0
        try:
            with socket.create_connection(self._place, timeout=PATIENCE_SEC) as connection:
                with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
                    connection.sendall(raw)
                while part := connection.recv(1 << 16):
                    size += len(part)
                    if len(head) < 4_096 or keep:
                        head += part
        except OSError:
            pass
        found = re.match(rb"HTTP/1\.[01] ([0-9]{3})", head)
        return int(found[1]) if found else 0, size, head.partition(b"\r\n\r\n")[2]

    def _kib(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB", self._status.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


def least(costs: list[Cost], what: Callable[[Cost], float]) -> float:
    """Return the smallest figure of repeated requests: noise only adds."""
    return min(map(what, costs))
