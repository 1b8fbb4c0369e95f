"""The gateway between the web server and Django: read each request on the event loop, then run Django in a thread.

Granian calls it on one event loop. A slow client costs memory there, but no thread: pings, health checks and status
pages do not wait for it. See docs/adr/0029.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.conf import settings

from config.errors import unavailable
from config.outages import OutageWatch, Turn
from config.pings import ATTEMPT, SimplePings
from core.addresses import client_of
from core.api.errors import json_error
from core.errors import ApiError, BodyTooLarge, Overloaded, RequestTimeout, TooManyRequests
from core.metrics import EVERY_SEC, mark_alive
from monitors.heartbeats.incoming import MAX_BODY_BYTES, Target, target_of
from monitors.heartbeats.pings import OK
from statuspages.public import is_public

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    from granian._granian import RSGIHTTPProtocol as HTTPProtocol
    from granian._granian import RSGIHTTPStreamTransport
    from granian.rsgi import Scope

REQUEST_THREADS = 96
BODY_SEC = 20.0
"""Timeout of reading a body."""
BODIES_OF_CLIENT = 32
"""Limit on bodies of one client that are read at the same time."""
BUFFERED_BYTES = 256 * 1024 * 1024
"""Limit on the size of all bodies that are being read."""
PART_SEC = 30.0
"""Timeout of sending each part of a streamed answer."""
MAX_JOINED_BYTES = 1024 * 1024
"""Streamed answers with a known length up to this are sent in one piece."""
_PLAIN = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})
_DIAGNOSTIC = frozenset({"/readyz", "/metrics"})
"""Paths that report outages themselves."""
_HEALTHY = [("Content-Type", "text/plain"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
_CLOSE = (("Connection", "close"),)
"""Sent with answers to requests whose body was not read."""

Result = TypeVar("Result")
Headers = list[tuple[str, str]]


class ThreadLane:
    """A thread pool with a bounded queue for one kind of request. Used only from the event loop."""

    def __init__(self, name: str, *, threads: int, queue: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads + queue

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """Run `work` in a thread. Raises Overloaded if no thread is free and the queue is full."""
        if self._free <= 0:
            raise Overloaded
        self._free -= 1
        try:
            return await get_running_loop().run_in_executor(self._threads, work, *args)
        finally:
            self._free += 1

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


class Reply(NamedTuple):
    """A response. `body` is None if it was streamed."""

    status: int
    headers: Headers
    body: bytes | None


class Gateway:
    """The RSGI application around a WSGI application."""

    def __init__(self, django: WSGIApplication) -> None:
        self._application = django
        self._readiness = ThreadLane("readiness", threads=2, queue=64)
        self._pings = ThreadLane("pings", threads=16, queue=1_024)
        self._public = ThreadLane("public", threads=16, queue=512)
        # `core.waiting` limits how many of these threads may wait for a worker.
        self._rest = ThreadLane("requests", threads=REQUEST_THREADS, queue=512)
        self._simple_pings = SimplePings()
        self._outages = OutageWatch(_refuse_turn)
        self._bodies: Counter[str] = Counter()
        self._buffered = 0

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mark_alive(loop)
        self._outages.begin(loop)

    def _mark_alive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Mark the web process as alive from its event loop."""
        mark_alive(("web",))
        loop.call_later(EVERY_SEC, self._mark_alive, loop)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        for lane in (self._readiness, self._pings, self._public, self._rest):
            lane.close()
        self._simple_pings.close()
        self._outages.close()

    async def __rsgi__(self, scope: Scope, exchange: HTTPProtocol) -> None:
        if scope.path == "/healthz":
            # The process runs. Neither its threads nor the servers count: a restart would not repair them.
            exchange.response_bytes(200, _HEALTHY, b"ok\n")
            return
        environ = environ_of(scope)
        turn = None
        try:
            target = target_of(scope.method, environ["PATH_INFO"])
            body = await (self._body if target is None else self._beginning)(scope, environ, exchange)
            environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(body), str(len(body))
            turn = Turn(exchange, environ["PATH_INFO"])
            if turn.path not in _DIAGNOSTIC:
                self._outages.add(turn)
            reply = await (self._django(environ, turn) if target is None else self._ping(environ, target, body, turn))
        except ApiError as error:
            reply = _refusal(error)
        except ConnectionError:  # the client disconnected
            return
        finally:
            if turn is not None:
                self._outages.remove(turn)
        if reply.body is not None and (turn is None or turn.take()):
            exchange.response_bytes(reply.status, reply.headers, reply.body)

    async def _django(self, environ: WSGIEnvironment, turn: Turn) -> Reply:
        return await self._lane(environ).run(self._call, environ, turn, get_running_loop())

    async def _ping(self, environ: WSGIEnvironment, target: Target, body: bytes, turn: Turn) -> Reply:
        headers = self._simple_pings.headers(environ)
        if headers is not None:
            attempt = await self._simple_pings.attempt(environ, target, body)
            if attempt.kept:
                return Reply(200, headers, OK)
            environ[ATTEMPT] = attempt
        reply = await self._pings.run(self._call, environ, turn, get_running_loop())
        if reply.status == 200:
            self._simple_pings.learn(environ, reply.headers)
        return reply

    def _lane(self, environ: WSGIEnvironment) -> ThreadLane:
        path = environ["PATH_INFO"]
        if path in _DIAGNOSTIC:
            return self._readiness
        return self._public if is_public(path, environ.get("HTTP_HOST", "")) else self._rest

    async def _body(self, scope: Scope, environ: WSGIEnvironment, exchange: HTTPProtocol) -> bytes:
        """Read the whole body. Raises BodyTooLarge, RequestTimeout, TooManyRequests, Overloaded or ConnectionError."""
        if not _has_body(scope, environ):
            return b""
        length, limit = environ.get("CONTENT_LENGTH"), settings.MAX_BODY_BYTES
        if length is not None and int(length) > limit:
            raise BodyTooLarge(limit=limit)
        body = bytearray()
        await self._receive(body, environ, exchange, limit=limit)
        if len(body) > limit:
            raise BodyTooLarge(limit=limit)
        if length is not None and len(body) < int(length):
            raise ConnectionError
        return bytes(body)

    async def _beginning(self, scope: Scope, environ: WSGIEnvironment, exchange: HTTPProtocol) -> bytes:
        """Read the beginning of a signal's body, or less if it does not come or there is no room: the signal counts."""
        body = bytearray()
        if _has_body(scope, environ) and environ["REQUEST_METHOD"] == "POST":
            with suppress(RequestTimeout, TooManyRequests, Overloaded):
                await self._receive(body, environ, exchange, limit=MAX_BODY_BYTES - 1)
        return bytes(body[:MAX_BODY_BYTES])

    async def _receive(self, body: bytearray, environ: WSGIEnvironment, exchange: HTTPProtocol, *, limit: int) -> None:
        """Read the body until it ends or exceeds the limit. Raises RequestTimeout, TooManyRequests or Overloaded."""
        client = client_of(environ).network
        if self._bodies[client] >= BODIES_OF_CLIENT:
            raise TooManyRequests(wait=BODY_SEC)
        self._bodies[client] += 1
        try:
            async with asyncio.timeout(BODY_SEC):
                async for part in exchange:
                    body += part
                    self._buffered += len(part)
                    if len(body) > limit:
                        return
                    if self._buffered > BUFFERED_BYTES:
                        raise Overloaded
        except TimeoutError:
            raise RequestTimeout from None
        finally:
            self._buffered -= len(body)
            self._bodies[client] -= 1
            if not self._bodies[client]:
                del self._bodies[client]

    def _call(self, environ: WSGIEnvironment, turn: Turn, loop: asyncio.AbstractEventLoop) -> Reply:
        """Run Django, in a thread."""
        status, headers = 500, Headers()

        def start_response(line: str, given: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            nonlocal status, headers
            status, headers = int(line[:3]), given
            return _refuse_write

        response: Any = self._application(environ, start_response)
        with closing(response):
            if getattr(response, "streaming", False) and not _is_short(headers):
                if turn.take():
                    _stream(response, turn.exchange.response_stream(status, headers), loop)
                return Reply(status, headers, None)
            return Reply(status, headers, b"".join(response))


def environ_of(scope: Scope) -> WSGIEnvironment:
    """Return the WSGI environ of a request, without its body.

    Header names with an underscore are dropped: `X_Forwarded_For` from a client would get the same key as
    `X-Forwarded-For` from a proxy.
    """
    client, _, _ = scope.client.rpartition(":")
    server, _, port = scope.server.rpartition(":")
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": "",
        # Granian decodes it as UTF-8, PEP 3333 requires Latin-1.
        "PATH_INFO": scope.path.encode(errors="replace").decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "REMOTE_ADDR": client.strip("[]"),
        "SERVER_NAME": server,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.scheme,
        "wsgi.input": BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope.headers.items():
        if "_" in name:
            continue
        key = name.upper().replace("-", "_")
        if key not in _PLAIN:
            key = f"HTTP_{key}"
        if key in environ:
            value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
        environ[key] = value
    if scope.authority is not None:  # HTTP/2 has no Host header
        environ.setdefault("HTTP_HOST", scope.authority)
    return environ


def _has_body(scope: Scope, environ: WSGIEnvironment) -> bool:
    length = environ.get("CONTENT_LENGTH")
    is_chunked = environ.pop("HTTP_TRANSFER_ENCODING", None) is not None
    return length != "0" and (length is not None or is_chunked or not scope.http_version.startswith("1"))


def _is_short(headers: Headers) -> bool:
    length = next((value for name, value in headers if name.lower() == "content-length"), "")
    return length.isdecimal() and int(length) <= MAX_JOINED_BYTES


def _stream(parts: Iterable[bytes], transport: RSGIHTTPStreamTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Send the parts from a thread, each after the client has received the previous one. Raises TimeoutError."""
    for part in parts:
        asyncio.run_coroutine_threadsafe(_send(transport, part), loop).result(PART_SEC)


async def _send(transport: RSGIHTTPStreamTransport, part: bytes) -> None:
    await transport.send_bytes(part)


def _refusal(error: ApiError) -> Reply:
    response = json_error(error)
    return Reply(response.status_code, [*response.items(), *_CLOSE], response.content)


def _refuse_turn(turn: Turn) -> None:
    response = unavailable(turn.path)
    turn.exchange.response_bytes(response.status_code, [*response.items()], response.content)


def _refuse_write(_: bytes) -> object:
    raise NotImplementedError("Django does not use write()")
