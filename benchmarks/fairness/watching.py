"""Observations of a neighbour from outside: pings, pages, /readyz and alerts, each with the time when it was due.

All run in one thread with an event loop. Each request has its own connection and timeout, so a slow one delays
no other, and its time counts from when it was due.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from benchmarks.fairness.client import PATIENCE_SEC, Front
from benchmarks.fairness.figures import Sample
from benchmarks.fairness.targets import response
from benchmarks.fairness.tenants import EMAIL, PASSWORD, SLUG, Quiet, Watched

ADDRESS, NETWORK = "127.0.9.1", "127.0.10"
"""The quiet tenant's own, as a proxy is 127.0.0.1."""
PINGS_PER_INTERVAL = 6
READY_SEC, PAGES_SEC, DRAFTS_SEC, SIGN_IN_SEC = 0.5, 1.0, 2.0, 5.0


class Alert(NamedTuple):
    at: float
    number: int
    up: bool


@dataclass
class Seen:
    """Observed requests that were due, and received alerts, since a time.

    `ready` are the words of /readyz, `other` if it did not answer. Requests without an answer yet are `pings` and
    `pages` too.
    """

    pings: list[Sample] = field(default_factory=list)
    pages: list[Sample] = field(default_factory=list)
    ready: list[tuple[float, str]] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)


class Watch:
    """Watch Pulsekeeper until the block ends. `url` is that of the receiver of alerts."""

    def __init__(self, front: Front, direct: Front) -> None:
        """`direct` reaches web without a proxy, for /readyz."""
        self._front, self._direct = front, direct
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="watch", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: set[int] = set()
        self._all = Seen()
        self._asked = 0
        self._open: dict[str, list[float]] = {"pings": [], "pages": []}
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._receive(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def begin(self, quiet: Quiet) -> None:
        """Ping the heartbeats, and read the pages."""
        ask: list[tuple[float, Callable[..., Coroutine[Any, Any, None]]]] = [(READY_SEC, self._readyz)]
        for each in quiet.monitors:
            if not each.polled:
                every = each.interval_sec / (1 if each.kind == "minute" else PINGS_PER_INTERVAL)
                ask.append((every, partial(self._ping, each)))
        bearer = {"Authorization": f"Bearer {quiet.token}"}
        credentials = {"email": EMAIL, "password": PASSWORD}
        for every, page in (
            (PAGES_SEC, partial(self._ask, "pages", "GET", "/monitors", headers={"Cookie": quiet.cookie})),
            (PAGES_SEC, partial(self._ask, "pages", "GET", f"/status/{SLUG}")),
            (PAGES_SEC, partial(self._ask, "pages", "GET", "/v1/monitors", headers=bearer)),
            (DRAFTS_SEC, partial(self._ask, "pages", "POST", "/v1/monitors/test", quiet.draft, headers=bearer)),
            (SIGN_IN_SEC, partial(self._ask, "pages", "POST", "/v1/sessions", credentials)),
        ):
            ask.append((every, page))
        for number, (every, act) in enumerate(ask):
            asyncio.run_coroutine_threadsafe(self._repeat(every, act, number / len(ask)), self._loop)

    def seen(self, since: float) -> Seen:
        now, found = time.time(), self._all
        pings, pages = (
            [*(sample for sample in done if sample.at >= since), *(Sample(at, now - at) for at in due if at >= since)]
            for done, due in ((found.pings[:], self._open["pings"][:]), (found.pages[:], self._open["pages"][:]))
        )
        ready = [one for one in found.ready[:] if one[0] >= since]
        return Seen(pings, pages, ready, [alert for alert in found.alerts[:] if alert.at >= since])

    def ping_all(self, quiet: Quiet) -> None:
        """Ping each heartbeat at once, without waiting for its next time."""
        for each in quiet.monitors:
            if not each.polled:
                asyncio.run_coroutine_threadsafe(self._ping(each, due=time.time()), self._loop)

    def switch(self, switches: Sequence[tuple[float, int, bool]]) -> None:
        """Let the jobs of heartbeats fall silent, or come back, at these times."""

        def add() -> None:
            for at, number, up in switches:
                self._loop.call_later(max(0.0, at - time.time()), self._set_silent, number, up)

        self._loop.call_soon_threadsafe(add)

    def _set_silent(self, number: int, up: bool) -> None:  # noqa: FBT001
        (self._silent.discard if up else self._silent.add)(number)

    async def _repeat(self, every: float, act: Callable[..., Coroutine[Any, Any, None]], phase: float) -> None:
        due = time.time() + min(every, 1.0) * phase
        while True:
            await asyncio.sleep(max(0.0, due - time.time()))
            task = self._loop.create_task(act(due=due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            due += every

    async def _ping(self, each: Watched, due: float) -> None:
        if each.number not in self._silent:
            await self._ask("pings", "POST", f"/v1/heartbeats/{each.public_id}/ping", due=due)

    async def _ask(
        self, kind: str, method: str, path: str, body: Any = None, *, due: float, headers: Any = None
    ) -> None:
        self._open[kind].append(due)
        self._asked += 1
        # More sign-ins from one address would be refused.
        address = f"{NETWORK}.{self._asked % 100 + 1}" if path == "/v1/sessions" else ADDRESS
        status, _ = await self._front.ask(address, method, path, body, headers=headers)
        taken = time.time() - due
        is_ok = status in (200, 201)
        getattr(self._all, kind).append(
            Sample(due, taken if is_ok else max(taken, PATIENCE_SEC), f"{method} {path} {status}")
        )
        self._open[kind].remove(due)

    async def _readyz(self, due: float) -> None:
        status, body = await self._direct.ask(ADDRESS, "GET", "/readyz")
        try:
            word = json.loads(body)["status"] if status else "other"
        except (ValueError, KeyError):
            word = "other"
        self._all.ready.append((due, word))

    async def _receive(self) -> str:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                at, number = time.time(), int(head.split(b" ", 2)[1].strip(b"/"))
                lines = (line.partition(b":") for line in head.lower().splitlines())
                length = next(int(value) for name, _, value in lines if name == b"content-length")
                told = json.loads(await reader.readexactly(length))
                for item in told.get("items", [told]):
                    self._all.alerts.append(Alert(at, number, item["event"] in ("recovered", "settled")))
                writer.write(response(200, b""))
            except (OSError, ValueError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=256)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
