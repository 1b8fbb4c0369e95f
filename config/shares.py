"""Fair shares of the web process for its clients: threads, and memory for bodies and answers. See docs/adr/0036.

A client is an IPv4 address or an IPv6 network (`core.addresses`). Everything here is used only from the event loop.
"""

from __future__ import annotations

import threading
import time
from asyncio import CancelledError, Future, get_running_loop, wrap_future
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from core import turns
from core.errors import Overloaded, TooManyRequests
from core.fair_queue import FairQueue
from core.metrics import LATE, REQUEST_SEC, Counter

RETRY_SEC = 5.0

LANES = ("readiness", "pings", "public", "requests", "streams", "agents")
MEMORIES = ("anonymous_bodies", "bodies", "answers", "changes")
REFUSED = Counter(
    "pulsekeeper_requests_refused_total",
    "Requests that the web server refused, by what was used up, and by whom: `client` (by the refused client, beyond "
    "its share) or `all`.",
    ("resource", "by"),
    [(resource, by) for resource in (*LANES, *MEMORIES, "signals") for by in ("client", "all")],
)
Result = TypeVar("Result")


def count_refusal(resource: str, *, is_own: bool) -> None:
    REFUSED.add(1, resource, "client" if is_own else "all")
    if not is_own:
        LATE.add(1, "pings" if resource in ("pings", "signals") else "pages")


def count_if_late(what: str, seconds: float) -> None:
    """Count a request as late if it took more than REQUEST_SEC, without the time of its client's other requests."""
    if seconds > REQUEST_SEC:
        LATE.add(1, what)


def decrease(counts: Count[str], client: str) -> None:
    counts[client] -= 1
    if not counts[client]:
        del counts[client]


@dataclass(eq=False, slots=True)
class _Ticket:
    """A request that waits for its turn. One that has run before comes first and is not refused: it has a thread."""

    client: str
    turn: Future[None]
    has_run: bool = False


class ThreadLane:
    """Run one kind of request in threads, `at_once` of them at the same time. More threads may be paused.

    Python runs one thread at a time, so more would only slow each other down. A client runs half of them at most. Next
    is the client whose requests ran least since it had none, so an occasional client precedes one that always
    asks. Each fourth turn goes to the client that waited for longest, so that all are served. `counts` is what is late
    (`core.metrics.LATE`) if an answer takes long. Time in which other requests of the same client ran does not count,
    and a request that comes to `at_once` others of its client waits for these.
    """

    def __init__(self, name: str, *, threads: int, at_once: int, queue: int, counts: str | None = "pages") -> None:
        self.name = name
        self._counts = counts
        self.is_closed = False
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._at_once = self._free = at_once
        self._most = (at_once + 1) // 2
        self._free_threads = threads
        self._waiting = FairQueue[_Ticket](queue)
        self._resuming: list[_Ticket] = []
        self._running: Count[str] = Count()
        self._present: Count[str] = Count()
        """Requests that run or wait for their turn."""
        self._passed = 0
        self._ran: defaultdict[str, float] = defaultdict(float)
        """Seconds for which requests of a client ran since it had none."""

    async def run(self, client: str, work: Callable[..., Result], *args: Any) -> Result:
        """Run `work` in a thread, when it is the client's turn. Raises Overloaded."""
        start, ran = time.monotonic(), self._ran.get(client, 0.0)
        # Later ones do not delay it: they come because answers take long.
        may_be_late = self._present[client] < self._at_once
        waited = await self._turn(client)
        turn = _LaneTurn(self, client, start=start, ran_before=ran, waited=waited, may_be_late=may_be_late)
        try:
            done = self._threads.submit(turn.run, work, args)
        except BaseException:
            self.leave(client, 0)
            raise
        # Also if this task is cancelled, the turn ends with the thread.
        done.add_done_callback(lambda _: turn.end())
        return await wrap_future(done)

    def begin(self, ticket: _Ticket) -> None:
        """Let a request run in its turn."""
        self._present[ticket.client] += 1
        if self._may_go(ticket.client, has_run=ticket.has_run):
            self._go(ticket)
        elif ticket.has_run:
            self._resuming.append(ticket)
        elif removed := self._waiting.put(ticket.client, ticket):
            refused, is_own = removed
            if not refused.turn.done():
                count_refusal(self.name, is_own=is_own)
                refused.turn.set_exception(Overloaded())

    def end(self, client: str, seconds: float) -> None:
        """Pass the turn of a request that ran for `seconds` to the next one. The request keeps its thread."""
        self._free += 1
        decrease(self._running, client)
        self._ran[client] += seconds
        self._forget(client)
        self._pass_on()

    def finish(self, turn: _LaneTurn, seconds: float) -> None:
        """Remove a request that ran for `seconds` since its turn began, and count it if it is late."""
        if self._counts and turn.may_be_late:
            took = turn.waited if turn.may_take_long else time.monotonic() - turn.start
            others_ran = self._ran[turn.client] - turn.ran_before - turn.ran
            count_if_late(self._counts, took - others_ran)
        self.leave(turn.client, seconds)

    def leave(self, client: str, seconds: float) -> None:
        """Give turn and thread of a request to the next one."""
        self._free_threads += 1
        self.end(client, seconds)

    def close(self) -> None:
        self.is_closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, client: str) -> float:
        """Wait for a turn. Return for how many seconds."""
        start = time.monotonic()
        ticket = _Ticket(client, get_running_loop().create_future())
        self.begin(ticket)
        waits = not ticket.turn.done()
        try:
            await ticket.turn
            return time.monotonic() - start if waits else 0.0
        except CancelledError:
            if ticket.turn.cancelled():
                self._waiting.remove(client, ticket)
                self._forget(client)
            elif ticket.turn.exception() is None:
                self.leave(client, 0)  # its turn had come
            else:
                self._forget(client)  # it was refused
            raise
        except Overloaded:
            self._forget(client)
            raise

    def _go(self, ticket: _Ticket) -> None:
        if ticket.turn.done():  # cancelled
            return
        self._free -= 1
        self._free_threads -= not ticket.has_run
        self._running[ticket.client] += 1
        ticket.turn.set_result(None)

    def _may_go(self, client: str, *, has_run: bool = False) -> bool:
        return self._free > 0 and (has_run or self._free_threads > 0) and self._running[client] < self._most

    def _forget(self, client: str) -> None:
        decrease(self._present, client)
        if client not in self._present:
            self._ran.pop(client, None)

    def _pass_on(self) -> None:
        for ticket in [*self._resuming]:
            if self._may_go(ticket.client, has_run=True):
                self._resuming.remove(ticket)
                self._go(ticket)
        while clients := [one for one in self._waiting if self._may_go(one)]:
            self._passed += 1
            client = clients[0] if self._passed % 4 == 0 else min(clients, key=self._ran.__getitem__)
            self._go(self._waiting.pop(client))


class _LaneTurn:
    """The turn of a request, as its thread has it (`core.turns`)."""

    def __init__(
        self, lane: ThreadLane, client: str, *, start: float, ran_before: float, waited: float, may_be_late: bool
    ) -> None:
        self.client, self.start, self.ran_before, self.waited = client, start, ran_before, waited
        self.may_be_late = may_be_late
        self.ran = 0.0
        """Seconds in earlier turns of this request."""
        self.may_take_long = False
        self._lane = lane
        self._loop = get_running_loop()
        self._since = time.monotonic()

    def run(self, work: Callable[..., Result], args: Sequence[Any]) -> Result:
        token = turns.current.set(self)
        try:
            return work(*args)
        finally:
            turns.current.reset(token)

    def pause(self) -> None:
        seconds = time.monotonic() - self._since
        self.ran += seconds
        self._call(self._lane.end, self.client, seconds)

    def end(self) -> None:
        self._call(self._lane.finish, self, time.monotonic() - self._since)

    def resume(self) -> None:
        has_come = threading.Event()

        def wait() -> None:
            ticket = _Ticket(self.client, self._loop.create_future(), has_run=True)
            ticket.turn.add_done_callback(lambda _: has_come.set())
            self._lane.begin(ticket)

        self._call(wait)
        start = time.monotonic()
        while not has_come.wait(1.0) and not self._lane.is_closed:
            pass
        self._since = time.monotonic()
        self.waited += self._since - start

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *args)


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
