"""While PostgreSQL does not answer, respond to waiting requests from the event loop. Their threads may hang.

A slow query, a lock or a busy machine is not an outage. So the watch keeps a separate connection open and sends empty
queries on it, which are answered at once even if a new connection takes seconds. PostgreSQL counts as away if nothing
arrives for CHECK_SEC; the time of arrival counts, not when this process reads it. Requests are still refused wrongly

- if PostgreSQL leaves even this query, and all requests, without an answer for CHECK_SEC: its machine stands still, the
  network loses packets, or all connections from PgBouncer to PostgreSQL are busy;
- just after a start or an outage, when the connection is not open yet, if opening it takes longer than CONNECT_SEC.

A refused request may still take effect when PostgreSQL continues, as after any lost connection.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import django.db
import psycopg

from core.postgresql.availability import AVAILABILITY, Connection
from core.postgresql.base import check

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from granian._granian import RSGIHTTPProtocol as HTTPProtocol

EVERY_SEC = 0.2
SLOW_SEC = 0.5
"""A request that takes longer makes the watch look whether PostgreSQL answers."""
CONNECT_SEC = 1.0
"""Timeout of a new connection, and the interval of attempts."""


class Turn:
    """The right to answer a request, which only the first taker gets."""

    __slots__ = ("_is_taken", "environ", "exchange", "since")

    def __init__(self, exchange: HTTPProtocol, environ: WSGIEnvironment) -> None:
        self.exchange, self.environ, self.since = exchange, environ, time.monotonic()
        self._is_taken = False

    def take(self) -> bool:
        """Claim the right to answer. Return False if it is already claimed. Used only from the event loop."""
        was_taken, self._is_taken = self._is_taken, True
        return not was_taken


class OutageWatch:
    """Refuses requests that wait for longer than SLOW_SEC while PostgreSQL is away. Used only from the event loop."""

    def __init__(self, refuse: Callable[[Turn], None]) -> None:
        self._refuse = refuse
        self._waiting: dict[Turn, None] = {}  # in the order of their arrival
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outages")
        self._connection: psycopg.Connection[Any] | None = None
        self._connecting: Future[None] | None = None
        self._connecting_since = -math.inf
        self._check: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(EVERY_SEC, self.begin, loop)
        now = time.monotonic()
        if self._connection is None and now - self._connecting_since > CONNECT_SEC:
            self._connect()  # before a request is slow
        oldest = next(iter(self._waiting), None)
        is_slow = oldest is not None and now - oldest.since > SLOW_SEC
        if is_slow and (self._check is None or self._check.done()):
            self._check = loop.create_task(self._refuse_slow(loop))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def add(self, turn: Turn) -> None:
        self._waiting[turn] = None

    def remove(self, turn: Turn) -> None:
        self._waiting.pop(turn, None)

    async def _refuse_slow(self, loop: asyncio.AbstractEventLoop) -> None:
        if await self._answers(loop):
            return
        now = time.monotonic()
        for turn in [turn for turn in self._waiting if now - turn.since > SLOW_SEC]:
            self.remove(turn)
            if turn.take():
                self._refuse(turn)

    async def _answers(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether PostgreSQL answers this query, or has answered a request since it was sent."""
        if self._connection is not None:
            start = time.monotonic()
            try:
                await loop.run_in_executor(self._thread, check, self._connection)
            except psycopg.errors.ConnectionTimeout as error:
                self._connection = None
                AVAILABILITY.failed(error, since=start)
                if AVAILABILITY.is_away:
                    return False
            except psycopg.OperationalError:  # closed, for example by a restart
                self._connection = None
            else:
                return True
        connecting = self._connect()
        done, _ = await asyncio.wait({asyncio.wrap_future(connecting)}, timeout=CONNECT_SEC)
        if not done:
            return AVAILABILITY.answered_at > self._connecting_since
        return self._connection is not None or not AVAILABILITY.is_away

    def _connect(self) -> Future[None]:
        """Begin to connect, or return the attempt that runs."""
        if self._connecting is None or self._connecting.done():
            self._connecting_since, self._connecting = time.monotonic(), self._thread.submit(self._open)
        return self._connecting

    def _open(self) -> None:
        """Connect, in the thread."""
        if self._connection is not None:  # by an attempt that has just ended
            return
        try:
            connection = Connection.connect(**django.db.connection.get_connection_params())
            check(connection)  # PgBouncer accepts connections without PostgreSQL
        except psycopg.OperationalError as error:
            AVAILABILITY.failed(error, since=self._connecting_since)
        else:
            self._connection = connection
