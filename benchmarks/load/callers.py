"""Callers during the measurement: clients that ping heartbeats, and clients that wait for a test run."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

_JSON = {"Content-Type": "application/json"}


def post(port: int, path: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = _JSON if token is None else _JSON | {"Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def get(port: int, path: str, *, token: str) -> int:
    """Return the status of the answer, after reading all of it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


class Callers:
    """Threads that call `act` at a steady rate until the block ends. Each waits only for its own response."""

    def __init__(self, threads: int, *, per_second: float) -> None:
        self._pause = threads / per_second
        self._leaving = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        self.errors: list[str] = []

    def act(self, number: int) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        due = time.monotonic() + self._pause * number / len(self._threads)
        while not self._leaving.wait(max(0.0, due - time.monotonic())):
            due += self._pause
            try:
                self.act(number)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.errors.append(repr(error))


class Pingers(Callers):
    """Ping each heartbeat once every `interval_sec`."""

    THREADS = 2

    def __init__(self, port: int, heartbeats: Sequence[str], *, interval_sec: float) -> None:
        super().__init__(self.THREADS, per_second=len(heartbeats) / interval_sec)
        self._port = port
        self._heartbeats = heartbeats
        self._next = list(range(self.THREADS))
        self.pings = 0

    def act(self, number: int) -> None:
        heartbeat = self._heartbeats[self._next[number] % len(self._heartbeats)]
        self._next[number] += self.THREADS
        status, answer = post(self._port, f"/v1/heartbeats/{heartbeat}/ping")
        if (status, answer) != (200, {"ok": True}):
            self.errors.append(f"ping: {status} {answer}")
        self.pings += 1


class Testers(Callers):
    """Test a draft repeatedly; `taken_ms` is the duration of the call for its caller."""

    def __init__(self, port: int, token: str, url: str, *, per_second: float = 4.0) -> None:
        super().__init__(4, per_second=per_second)
        self._port = port
        self._token = token
        self._draft = {"url": url}
        self.taken_ms: list[float] = []

    def act(self, number: int) -> None:
        start = time.perf_counter()
        status, answer = post(self._port, "/v1/monitors/test", self._draft, token=self._token)
        self.taken_ms.append((time.perf_counter() - start) * 1000)
        if status != 200 or answer["status"] != "up":
            self.errors.append(f"test: {status} {answer}")
