"""Answer signals of jobs from the event loop, without Django, whose overhead costs more than a ping.

Those that arrive together are recorded by one statement, or one transaction if they change anything. What is refused,
or has to wait for a lock, is passed on to Django. See docs/adr/0028.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from django.db import connection

from config.access import is_forwarded_https
from config.shares import count_if_late, count_refusal
from core.addresses import client_of
from core.errors import Overloaded
from core.fair_queue import FairQueue
from monitors.heartbeats.incoming import Target
from monitors.heartbeats.views import Attempt, Request, attempt_all, complete_all

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

ATTEMPT = "pulsekeeper.ping"
"""The key in the environ and in request.META for the result of the event loop's attempt."""

MAX_WAITING = 4_096
"""Limit on waiting items. `config.bodies` limits the memory of their bodies."""
_MAX_HOSTS = 128
_MAX_BATCH = 100

Headers = list[tuple[str, str]]
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Place(NamedTuple, Generic[Item, Result]):
    """An item that waits or is worked on."""

    client: str
    item: Item
    result: Future[Result]
    since: float


class GroupCommit(Generic[Item, Result]):
    """Do the work for all items that wait in one call, in a thread. Used only from the event loop.

    While the thread works on one batch, the items that arrive form the next. An item never waits for others.
    """

    def __init__(self, name: str, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = FairQueue[_Place[Item, Result]](MAX_WAITING)
        self._present: dict[str, int] = {}
        self._busy = False

    def close(self) -> None:
        self._thread.shutdown()

    def run(self, client: str, item: Item) -> Future[Result]:
        """Return the future result of the item. Clients take turns.

        If too many items wait, as while the database hangs, the newest of the client with the most gets Overloaded.
        """
        loop = get_running_loop()
        place = _Place(client, item, loop.create_future(), loop.time())
        self._present[client] = self._present.get(client, 0) + 1
        if removed := self._waiting.put(client, place):
            refused, is_own = removed
            count_refusal("signals", is_own=is_own)
            self._leave(refused, loop.time())
            if not refused.result.done():
                refused.result.set_exception(Overloaded())
        if not self._busy:
            self._start_batch()
        return place.result

    def _leave(self, place: _Place[Item, Result], now: float) -> None:
        if others := self._present.pop(place.client) - 1:
            self._present[place.client] = others
        else:
            count_if_late("pings", now - place.since)

    def _start_batch(self) -> None:
        batch = [self._waiting.pop() for _ in range(min(len(self._waiting), _MAX_BATCH))]
        self._busy = True
        done = get_running_loop().run_in_executor(self._thread, self._run, [place.item for place in batch])
        done.add_done_callback(lambda done: self._finish_batch(batch, done))

    def _run(self, items: Sequence[Item]) -> Sequence[Result]:
        try:
            return self._work(items)
        finally:
            # Returned to the pool, unless the next batch waits already. After an error it may be broken.
            if connection.errors_occurred or not self._waiting:
                connection.close()

    def _finish_batch(self, batch: Sequence[_Place[Item, Result]], done: Future[Sequence[Result]]) -> None:
        self._busy = False
        if self._waiting:
            self._start_batch()
        error, now = done.exception(), get_running_loop().time()
        for number, place in enumerate(batch):
            self._leave(place, now)
            if place.result.done():  # cancelled: the server is stopping
                continue
            if error is None:
                place.result.set_result(done.result()[number])
            else:
                place.result.set_exception(error)


class SimplePings:
    """Group commits of signals: a quick one of pings that change nothing, and a full one of all others.

    They have a thread each, so that pings do not wait for other signals.
    """

    def __init__(self) -> None:
        self._quick = GroupCommit("simple-pings", attempt_all)
        self._full = GroupCommit("signals", complete_all)
        self._headers: OrderedDict[tuple[str, bool], Headers] = OrderedDict()

    def close(self) -> None:
        self._quick.close()
        self._full.close()

    async def attempt(self, environ: WSGIEnvironment, target: Target, body: bytes) -> Attempt:
        client = client_of(environ)
        attempt = await self._quick.run(client.network, Request(environ, client, target, body))
        return await self._full.run(client.network, attempt) if attempt.is_pending else attempt

    def headers(self, environ: WSGIEnvironment) -> Headers | None:
        """Return the headers of Django's answers to pings with this host and scheme, or None if not known yet."""
        return self._headers.get(_site(environ))

    def learn(self, environ: WSGIEnvironment, headers: Headers) -> None:
        """Remember the headers of an answer. The middleware that sets them depends only on host and scheme."""
        self._headers[_site(environ)] = headers
        if len(self._headers) > _MAX_HOSTS:
            self._headers.popitem(last=False)


def _site(environ: WSGIEnvironment) -> tuple[str, bool]:
    return environ.get("HTTP_HOST", ""), environ["wsgi.url_scheme"] == "https" or is_forwarded_https(environ)
