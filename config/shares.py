"""Fair shares of the web process for its clients: threads, and memory for bodies and answers. See docs/adr/0036.

A client is an IPv4 address or an IPv6 network (`core.addresses`). Everything here is used only from the event loop.
"""

from __future__ import annotations

import time
from asyncio import CancelledError, Future, get_running_loop
from collections import Counter as Count
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from core.errors import Overloaded, TooManyRequests
from core.metrics import LATE, REQUEST_SEC, Counter

RETRY_SEC = 5.0

LANES = ("readiness", "pings", "public", "requests", "streams")
MEMORIES = ("anonymous_bodies", "bodies", "answers")
REFUSED = Counter(
    "pulsekeeper_requests_refused_total",
    "Requests that the web server refused, by what was used up, and by whom: `client` (by the refused client, beyond "
    "its share) or `all`.",
    ("resource", "by"),
    [(resource, by) for resource in (*LANES, *MEMORIES, "signals") for by in ("client", "all")],
)
Item = TypeVar("Item")
Result = TypeVar("Result")


def count_refusal(resource: str, *, is_own: bool) -> None:
    REFUSED.add(1, resource, "client" if is_own else "all")
    if not is_own:
        LATE.add(1, "pings" if resource in ("pings", "signals") else "pages")


class FairQueue(Generic[Item]):
    """A bounded queue from which clients are served in turns, each in the order of its own items."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0
        self._waiting: dict[str, deque[Item]] = {}  # the next client first

    def __len__(self) -> int:
        return self._length

    def put(self, client: str, item: Item) -> tuple[Item, bool] | None:
        """Add an item. If the queue is full, remove the newest item of the client that has the most.

        Return the removed item, and whether its client had others.
        """
        self._waiting.setdefault(client, deque()).append(item)
        self._length += 1
        if self._length <= self._most:
            return None
        most = max(self._waiting, key=lambda one: len(self._waiting[one]))
        has_others = len(self._waiting[most]) > 1
        removed = self._waiting[most][-1]
        self.remove(most, removed)
        return removed, has_others

    def pop(self) -> Item:
        """Remove the next item. The others of its client wait until each other client had a turn."""
        client = next(iter(self._waiting))
        queue = self._waiting.pop(client)
        item = queue.popleft()
        if queue:
            self._waiting[client] = queue
        self._length -= 1
        return item

    def remove(self, client: str, item: Item) -> None:
        """Remove an item if it waits."""
        queue = self._waiting.get(client, deque())
        with suppress(ValueError):
            queue.remove(item)
            self._length -= 1
            if not queue:
                del self._waiting[client]


class ThreadLane:
    """A thread pool for one kind of request. Clients take turns, so none waits for all requests of another."""

    def __init__(self, name: str, *, threads: int, queue: int) -> None:
        self.name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._waiting = FairQueue[Future[None]](queue)
        self._present: Count[str] = Count()

    async def run(self, client: str, work: Callable[..., Result], *args: Any, is_prompt: bool = False) -> Result:
        """Run `work` in a thread, when it is the client's turn. Raises Overloaded.

        If the work should be prompt, all of its time counts as lateness, else only the wait for a thread.
        """
        start = time.monotonic()
        self._present[client] += 1
        try:
            if self._free:
                self._free -= 1
            else:
                await self._turn(client)
            if not is_prompt:
                self._count_if_late(client, start)
            try:
                return await get_running_loop().run_in_executor(self._threads, work, *args)
            finally:
                if is_prompt:
                    self._count_if_late(client, start)
                self._pass_on()
        finally:
            self._present[client] -= 1
            if not self._present[client]:
                del self._present[client]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, client: str) -> None:
        turn: Future[None] = get_running_loop().create_future()
        if removed := self._waiting.put(client, turn):
            count_refusal(self.name, is_own=removed[1])
            removed[0].set_exception(Overloaded())
        try:
            await turn
        except CancelledError:
            self._waiting.remove(client, turn)
            if not turn.cancelled():
                self._pass_on()  # its turn had come
            raise

    def _count_if_late(self, client: str, start: float) -> None:
        # A client's further requests wait for its own first.
        if time.monotonic() - start > REQUEST_SEC and self._present[client] == 1:
            LATE.add(1, "pings" if self.name == "pings" else "pages")

    def _pass_on(self) -> None:
        """Give the thread to the next client."""
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # cancelled
                turn.set_result(None)
                return
        self._free += 1


class Memory:
    """Bytes that clients share. Each may use a part of what is free, so there is always some for another client."""

    def __init__(self, name: str, *, size: int, part: float) -> None:
        self.name = name
        self.free = size
        self._size, self._part = size, part
        self._used: Count[str] = Count()

    def take(self, client: str, size: int) -> None:
        """Reserve bytes for a client. Raises TooManyRequests or Overloaded."""
        used = self._used[client] + size
        if used > (self.free - size) * self._part:
            clients = len(self._used.keys() | {client})
            is_own = used > self._size * self._part / (1 + self._part * clients)
            count_refusal(self.name, is_own=is_own)
            raise TooManyRequests(wait=RETRY_SEC) if is_own else Overloaded
        self._used[client] = used
        self.free -= size

    @contextmanager
    def taken(self, client: str, size: int) -> Iterator[None]:
        """Reserve bytes during the block. Raises TooManyRequests or Overloaded."""
        self.take(client, size)
        try:
            yield
        finally:
            self.give_back(client, size)

    def give_back(self, client: str, size: int) -> None:
        self.free += size
        self._used[client] -= size
        if not self._used[client]:
            del self._used[client]
