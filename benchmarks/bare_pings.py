"""The least that a web server can do for a ping, to compare ours with: an RSGI application for `benchmarks/pings.py`.

It records the pings that wait with the statement of `monitors.heartbeats.services`, and nothing else: no Django, no
limits, no counters, no other requests, no care for a database that is away. Like the product it checks the connection
first (an empty query), works in one thread, and records all pings that wait with the next statement: a transaction for
each would cost several times as much.

BARE_STATEMENT is the statement and BARE_VALUES the values in JSON that are the same for all pings.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from granian._granian import RSGIHTTPProtocol as HTTPProtocol
    from granian.rsgi import Scope

MAX_BATCH = 100
_OK = b'{"ok":true}'
_HEADERS = [("Content-Type", "application/json")]
_MICROSECOND = timedelta(microseconds=1)

Ping = tuple[str, str, str, str]  # heartbeat, method, address, user agent
Waiting = list[tuple[Ping, "asyncio.Future[bool]"]]


class Application:
    def __init__(self) -> None:
        self._statement = os.environ["BARE_STATEMENT"]
        self._values: dict[str, Any] = json.loads(os.environ["BARE_VALUES"])
        self._thread = ThreadPoolExecutor(1)
        self._connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self._waiting: Waiting = []
        self._busy = False

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def __rsgi__(self, scope: Scope, exchange: HTTPProtocol) -> None:
        parts = scope.path.split("/")  # /v1/heartbeats/<id>/ping
        if len(parts) != 5:
            exchange.response_bytes(200, _HEADERS, _OK)
            return
        address, _, _ = scope.client.rpartition(":")
        future = self._loop.create_future()
        self._waiting.append(((parts[3], scope.method, address, scope.headers.get("user-agent") or ""), future))
        if not self._busy:
            self._begin()
        exchange.response_bytes(200 if await future else 500, _HEADERS, _OK)

    def _begin(self) -> None:
        self._busy = True
        batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
        done = self._loop.run_in_executor(self._thread, self._record, [ping for ping, _ in batch])
        done.add_done_callback(lambda done: self._finish(batch, done.result()))

    def _finish(self, batch: Waiting, recorded: set[str]) -> None:
        self._busy = False
        if self._waiting:
            self._begin()
        for (name, *_), future in batch:
            future.set_result(name in recorded)

    def _record(self, pings: list[Ping]) -> set[str]:
        first = {ping[0]: ping for ping in pings}
        now = datetime.now(UTC)
        given = {
            "public_ids": _array(first),
            "times": _array((now + number * _MICROSECOND).isoformat() for number in range(len(first))),
            "exit_statuses": "{" + ",".join(["NULL"] * len(first)) + "}",
            "methods": _array(method for _, method, _, _ in first.values()),
            "addresses": _array(address for _, _, address, _ in first.values()),
            "user_agents": _array(agent for *_, agent in first.values()),
        }
        self._connection.pgconn.exec_(b"")
        with self._connection.cursor() as cursor:
            cursor.execute(self._statement, given | self._values, prepare=True)
            return {name for (name,) in cursor.fetchall()}


def _array(texts: Any) -> str:
    return "{" + ",".join(f'"{text}"' for text in texts) + "}"


application = Application()
gc.collect()
gc.freeze()
