"""Answer simple pings from the event loop, without Django, whose overhead costs more than the ping.

A ping is simple if its heartbeat is up and stays up. Pings that arrive together are recorded by one statement. All
other pings are passed on to Django. See docs/adr/0028.
"""

from __future__ import annotations

import re
from asyncio import Future, get_running_loop
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from django.db import connection

from config.access import is_forwarded_https
from monitors.heartbeats.pings import Attempt, Ping, attempt_all

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

ATTEMPT = "pulsekeeper.ping"
"""The key in the environ and in request.META for the result of the event loop's attempt."""

_PING = re.compile(r"/v1/heartbeats/([0-9A-Za-z_-]{1,64})/ping")
_METHODS = frozenset({"GET", "HEAD", "POST"})
_MAX_HOSTS = 128
_MAX_BATCH = 100

Headers = list[tuple[str, str]]
_Waiting = tuple[Ping, Future[Attempt]]


def pinged_heartbeat(method: str | None, path: str) -> str | None:
    """Return the id of the heartbeat that the request pings, or None if it is not a ping."""
    found = _PING.fullmatch(path) if method in _METHODS else None
    return None if found is None else found[1]


class SimplePings:
    """Group commit of pings. Used only from the event loop.

    While a thread records one batch, the pings that arrive form the next. A ping never waits for others.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simple-pings")
        self._waiting: list[_Waiting] = []
        self._busy = False
        self._headers: OrderedDict[tuple[str, bool], Headers] = OrderedDict()

    def close(self) -> None:
        self._thread.shutdown()

    async def attempt(self, environ: WSGIEnvironment, monitor_id: str) -> Attempt:
        future: Future[Attempt] = get_running_loop().create_future()
        self._waiting.append((Ping(environ, monitor_id), future))
        if not self._busy:
            self._start_batch()
        return await future

    def _start_batch(self) -> None:
        batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
        self._busy = True
        done = get_running_loop().run_in_executor(self._thread, _attempt, [ping for ping, _ in batch])
        done.add_done_callback(lambda done: self._finish_batch(batch, done))

    def _finish_batch(self, batch: Sequence[_Waiting], done: Future[list[Attempt]]) -> None:
        self._busy = False
        if self._waiting:
            self._start_batch()
        error = done.exception()
        for index, (_, future) in enumerate(batch):
            if future.done():  # cancelled: the server is stopping
                continue
            if error is None:
                future.set_result(done.result()[index])
            else:
                future.set_exception(error)

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


def _attempt(pings: Sequence[Ping]) -> list[Attempt]:
    try:
        return attempt_all(pings)
    finally:
        connection.close()  # returned to the pool
