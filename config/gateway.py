"""The gateway between the web server and Django: read each request on the event loop, then run Django in a thread.

Granian calls it on one event loop. A slow client costs memory there, but no thread: pings, health checks and status
pages do not wait for it. See docs/adr/0029.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from contextvars import copy_context
from functools import lru_cache
from io import BytesIO
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from checks.agent_protocol import LEASES
from config import agents
from config.bodies import Bodies, Body, has_body
from config.changes import Streams
from config.connections import Connections
from config.errors import unavailable
from config.outages import OutageWatch, Turn
from config.pings import ATTEMPT, SimplePings
from config.pool import follow_pool
from config.routes import OTHER, PING, ROUTE, SIGNAL, Answers, route_of
from config.sending import PIECE_BYTES, Receiver
from config.shares import Memory, ThreadLane, count_if_late
from core.addresses import client_of
from core.api.errors import json_error
from core.db import release_outside_transaction
from core.errors import ApiError, HeadersTooLarge, HttpVersionNotSupported
from core.metrics import EVERY_SEC, LATE, REQUEST_SEC, mark_alive
from dashboard.changes import ChangesResponse, Follower
from monitors.heartbeats.incoming import target_of
from monitors.heartbeats.views import OK
from statuspages.public import is_public

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    from granian._granian import RSGIHTTPProtocol as HTTPProtocol
    from granian.rsgi import Scope

REQUEST_THREADS, REQUESTS_AT_ONCE = 128, 4
MAX_HEADERS = 100
"""Granian's own limit too; it also limits their bytes (`--http1-buffer-size` in the Procfile)."""
STREAM_BYTES = 1024 * 1024
"""Memory of a streamed answer: the window of its client, and what its producer has read."""
MAX_JOINED_BYTES = 1024 * 1024
"""Streamed answers with a known length up to this are read at once."""
_PLAIN = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})
_DIAGNOSTIC = frozenset({"/readyz", "/metrics"})
"""Paths that report outages themselves."""
_HEALTHY = [("Content-Type", "text/plain"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
_JSON = [("Content-Type", "application/json"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
_ENVIRON = {
    "SCRIPT_NAME": "",
    "wsgi.version": (1, 0),
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}
_CLOSE = (("Connection", "close"),)
"""Sent with answers to requests whose body was not read."""

Headers = list[tuple[str, str]]


class Parts:
    """The body of a streamed response. Each part may be read by another thread."""

    def __init__(self, response: Any) -> None:
        self._response, self._parts, self._context = response, iter(response), copy_context()

    def next(self) -> bytes:
        """Return the next part, or b"" at the end."""
        try:
            return self._context.run(lambda: next(filter(None, self._parts), b""))
        finally:
            release_outside_transaction()

    def close(self) -> None:
        self._context.run(self._response.close)


class Reply(NamedTuple):
    """A response. `parts` are the body of a streamed one; that to a `follower` stays open for changes."""

    status: int
    headers: Headers
    body: bytes
    parts: Parts | None = None
    follower: Follower | None = None


class Gateway:
    """The RSGI application around a WSGI application."""

    def __init__(self, django: WSGIApplication, *, connections: Connections | None = None) -> None:
        self._application = django
        # Together they run fewer requests at the same time than there are connections to the database.
        self._readiness = ThreadLane("readiness", threads=2, at_once=2, queue=64, counts=None)
        self._pings = ThreadLane("pings", threads=4, at_once=4, queue=1_024, counts="pings")
        # `accounts.hashing` and `statuspages.caching` limit how many are paused.
        self._public = ThreadLane("public", threads=40, at_once=2, queue=512)
        # `core.waiting` limits how many of these threads may wait for a worker.
        self._rest = ThreadLane("requests", threads=REQUEST_THREADS, at_once=REQUESTS_AT_ONCE, queue=512)
        # Each answer waits for its client between the parts, without a thread.
        self._streams = ThreadLane("streams", threads=2, at_once=2, queue=4_096)
        self._changes = Streams(self._streams)
        self._agents = agents.Agents()
        self._simple_pings = SimplePings()
        self._outages = OutageWatch(self._refuse_turn)
        self._bodies = Bodies()
        self._answers = Memory("answers", size=64 * 1024 * 1024, part=0.5)
        self._connections = connections or Connections()
        self._answered = Answers()
        self._alive_at = -math.inf

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mark_alive(loop)
        follow_pool(("web",))
        self._outages.begin(loop)
        self._connections.begin(loop)
        self._changes.begin(loop)
        self._agents.begin(loop)
        _call_on_signals(self._changes.close, loop)
        _call_on_signals(self._agents.close, loop)

    def _mark_alive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Mark the web process as alive from its event loop."""
        mark_alive(("web",))
        self._answered.report()
        if 0 < self._alive_at < loop.time() - EVERY_SEC - REQUEST_SEC:
            LATE.add(1, "pings")
            LATE.add(1, "pages")
        self._alive_at = loop.time()
        loop.call_later(EVERY_SEC, self._mark_alive, loop)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._changes.close()
        self._agents.close()
        self._agents.end()
        for lane in (self._readiness, self._pings, self._public, self._rest, self._streams):
            lane.close()
        self._simple_pings.close()
        self._outages.close()
        self._connections.close()
        self._answered.report()

    async def __rsgi__(self, scope: Scope, exchange: HTTPProtocol) -> None:
        if scope.path == "/healthz":
            # The process runs. Neither its threads nor the servers count: a restart would not repair them.
            exchange.response_bytes(200, _HEALTHY, b"ok\n")
            return
        name = scope.client
        self._connections.active.add(name)
        if scope.path == LEASES and scope.method == "POST" and (agent := self._agents.find(scope.headers)):
            await self._poll(agent, exchange, name)
            return
        body: Body | None = None
        turn = None
        try:
            environ = environ_of(scope, name)
            path = environ["PATH_INFO"]
            if target := target_of(scope.method, path):
                environ[ROUTE] = PING if path.endswith("/ping") else SIGNAL
            content = b""
            if has_body(environ):
                body = Body(self._bodies)
                await (body.read if target is None else body.read_beginning)(environ, exchange)
                content = body.content
            turn = Turn(exchange, environ)
            if target is not None:
                self._outages.add(turn)
                if (headers := self._simple_pings.headers(environ)) is not None:
                    attempt = await self._simple_pings.attempt(environ, target, content)
                    if attempt.kept:
                        if turn.take():
                            self._count(turn, 200)
                            exchange.response_bytes(200, headers, OK)
                        return
                    environ[ATTEMPT] = attempt
            elif path in agents.PATHS and scope.method == "POST":
                environ[ROUTE] = path
                answer = await self._agents.answer(environ, exchange, content)
                turn.since = time.monotonic()  # it waited for checks
                if turn.take():
                    self._count(turn, 200)
                    exchange.response_bytes(200, _JSON, answer)
                return
            elif path not in _DIAGNOSTIC:
                self._outages.add(turn)
            environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(content), str(len(content))
            lane = self._lane(environ) if target is None else self._pings
            reply = await lane.run(client_of(environ).network, self._call, environ)
            if target is not None and reply.status == 200:
                self._simple_pings.learn(environ, reply.headers)
            if reply.follower is not None:
                self._outages.remove(turn)
                await self._follow(environ, reply.headers, reply.follower, turn, name)
            elif reply.parts is not None or len(reply.body) > PIECE_BYTES:
                self._outages.remove(turn)
                await self._send_large(environ, reply, turn, name)
            elif turn.take():
                self._count(turn, reply.status)
                exchange.response_bytes(reply.status, reply.headers, reply.body)
        except ApiError as error:
            if turn is None:
                self._answered.add(OTHER, scope.method, error.status, 0.0)
                _refuse(error, exchange)
            elif turn.take():
                self._count(turn, error.status)
                _refuse(error, exchange)
        except ConnectionError:  # the client disconnected
            return
        finally:
            if turn is not None:
                self._outages.remove(turn)
            if body is not None:
                body.release()
            self._connections.active.discard(name)

    async def _poll(self, agent: agents.Known, exchange: HTTPProtocol, name: str) -> None:
        """Answer an agent that asks for checks."""
        try:
            answer = await self._agents.poll(agent, exchange)
        except ApiError as error:
            self._answered.add(LEASES, "POST", error.status, 0.0)
            _refuse(error, exchange)
        except ConnectionError:  # the client disconnected
            return
        else:
            self._answered.add(LEASES, "POST", 200, 0.0)  # it waited for checks
            exchange.response_bytes(200, _JSON, answer)
        finally:
            self._connections.active.discard(name)

    def _lane(self, environ: WSGIEnvironment) -> ThreadLane:
        path = environ["PATH_INFO"]
        if path in _DIAGNOSTIC:
            return self._readiness
        return self._public if is_public(path, environ.get("HTTP_HOST", "")) else self._rest

    def _call(self, environ: WSGIEnvironment) -> Reply:
        """Run Django, in a thread."""
        status, headers = 500, Headers()

        def start_response(line: str, given: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            nonlocal status, headers
            status, headers = int(line[:3]), given
            return _refuse_write

        response: Any = self._application(environ, start_response)
        if isinstance(response, ChangesResponse):
            response.close()
            return Reply(status, headers, b"", follower=response.follower)
        if getattr(response, "streaming", False) and not _is_short(headers):
            release_outside_transaction()
            return Reply(status, headers, b"", Parts(response))
        with closing(response):
            return Reply(status, headers, b"".join(response))

    async def _send_large(self, environ: WSGIEnvironment, reply: Reply, turn: Turn, name: str) -> None:
        """Send a response at the pace of its client. Raises ConnectionError, or an ApiError if memory is short."""
        client = client_of(environ).network
        async with AsyncExitStack() as stack:
            if reply.parts is not None:
                stack.push_async_callback(self._streams.run, client, reply.parts.close)
            stack.enter_context(self._answers.taken(client, STREAM_BYTES if reply.parts else len(reply.body)))
            start = time.monotonic()
            connection = await self._connections.open(name) if sys.platform == "linux" else None
            # The rest of the request took time too, which the lane knows.
            count_if_late("pages", 2 * (time.monotonic() - start))
            if connection is not None:
                stack.enter_context(connection)
            if not turn.take():
                return
            self._count(turn, reply.status)
            transport = turn.exchange.response_stream(reply.status, reply.headers)
            if environ["REQUEST_METHOD"] == "HEAD":
                return
            receiver = Receiver(transport, connection)
            try:
                if reply.parts is None:
                    await receiver.send(reply.body)
                    return
                while part := await self._streams.run(client, reply.parts.next):
                    await receiver.send(part)
            except BaseException:
                receiver.abort()
                raise

    async def _follow(
        self, environ: WSGIEnvironment, headers: Headers, follower: Follower, turn: Turn, name: str
    ) -> None:
        """Keep a stream of changes open. Raises an ApiError if too many are open."""
        with self._changes.place(client_of(environ).network, follower):
            if turn.take():
                self._count(turn, 200)
                # An idle connection from now on, which the guard may end: pages look for changes without it, too.
                self._connections.active.discard(name)
                await self._changes.serve(turn.exchange, headers, follower)

    def _refuse_turn(self, turn: Turn) -> None:
        response = unavailable(turn.environ["PATH_INFO"])
        self._count(turn, response.status_code)
        turn.exchange.response_bytes(response.status_code, [*response.items()], response.content)

    def _count(self, turn: Turn, status: int) -> None:
        environ = turn.environ
        self._answered.add(route_of(environ), environ["REQUEST_METHOD"], status, time.monotonic() - turn.since)


def environ_of(scope: Scope, name: str) -> WSGIEnvironment:
    """Return the WSGI environ of a request, without its body. Raises HeadersTooLarge or HttpVersionNotSupported.

    Header names with an underscore are dropped: `X_Forwarded_For` from a client would get the same key as
    `X-Forwarded-For` from a proxy.
    """
    version = scope.http_version
    if version[0] != "1":
        raise HttpVersionNotSupported
    headers, path = scope.headers.items(), scope.path
    if len(headers) > MAX_HEADERS:
        raise HeadersTooLarge(limit=MAX_HEADERS)
    client, _, _ = name.rpartition(":")
    server, _, port = scope.server.rpartition(":")
    environ: WSGIEnvironment = {
        **_ENVIRON,
        "REQUEST_METHOD": scope.method,
        # Granian decodes it as UTF-8, PEP 3333 requires Latin-1.
        "PATH_INFO": path if path.isascii() else path.encode(errors="replace").decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "REMOTE_ADDR": client.strip("[]"),
        "SERVER_NAME": server,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{version}",
        "wsgi.url_scheme": scope.scheme,
    }
    repeated: dict[str, list[str]] = {}
    for name, value in headers:
        key = _key(name)
        if key is None:
            continue
        if key in environ:
            repeated.setdefault(key, [environ[key]]).append(value)
        else:
            environ[key] = value
    for key, values in repeated.items():
        if key not in _PLAIN:
            environ[key] = ("; " if key == "HTTP_COOKIE" else ",").join(values)
    return environ


@lru_cache(maxsize=1_024)
def _key(header: str) -> str | None:
    """Return the key of a header in the environ, or None if it is dropped."""
    if "_" in header:
        return None
    key = header.upper().replace("-", "_")
    return key if key in _PLAIN else f"HTTP_{key}"


def _call_on_signals(function: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    """Call `function` on the loop when this process is asked to stop. Granian notifies applications only after all
    requests have ended.

    Its handlers are kept: asyncio and uvloop have one in Python for each signal, and are woken up by C.
    """
    if threading.current_thread() is not threading.main_thread():  # a test; the process has other handlers
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
            loop.call_soon_threadsafe(function)
            if callable(before):
                before(number, frame)

        signal.signal(number, handle)
        signal.siginterrupt(number, False)  # noqa: FBT003


def _is_short(headers: Headers) -> bool:
    length = next((value for name, value in headers if name.lower() == "content-length"), "")
    return length.isdecimal() and int(length) <= MAX_JOINED_BYTES


def _refuse(error: ApiError, exchange: HTTPProtocol) -> None:
    response = json_error(error)
    exchange.response_bytes(response.status_code, [*response.items(), *_CLOSE], response.content)


def _refuse_write(_: bytes) -> object:
    raise NotImplementedError("Django does not use write()")
