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
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.conf import settings

from config.pings import ATTEMPT, SimplePings, pinged_heartbeat
from core.addresses import network_of
from core.api.errors import json_error
from core.errors import ApiError, BodyTooLarge, Overloaded, RequestTimeout, TooManyRequests
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
        self._django = django
        self._health = ThreadLane("health", threads=1, queue=64)
        self._readiness = ThreadLane("readiness", threads=2, queue=64)
        self._pings = ThreadLane("pings", threads=16, queue=1_024)
        self._public = ThreadLane("public", threads=8, queue=512)
        # `core.waiting` limits how many of these threads may wait for a worker.
        self._rest = ThreadLane("requests", threads=REQUEST_THREADS, queue=512)
        self._simple_pings = SimplePings()
        self._bodies: Counter[str] = Counter()
        self._buffered = 0

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        for lane in (self._health, self._readiness, self._pings, self._public, self._rest):
            lane.close()
        self._simple_pings.close()

    async def __rsgi__(self, scope: Scope, exchange: HTTPProtocol) -> None:
        environ = environ_of(scope)
        try:
            monitor_id = pinged_heartbeat(scope.method, environ["PATH_INFO"])
            if monitor_id is not None:
                reply = await self._ping(environ, monitor_id, exchange)
            else:
                body = await self._body(scope, environ, exchange)
                environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(body), str(len(body))
                reply = await self._lane(environ).run(self._call, environ, exchange, get_running_loop())
        except ApiError as error:
            reply = _refusal(error)
        except ConnectionError:  # the client disconnected
            return
        if reply.body is not None:
            exchange.response_bytes(reply.status, reply.headers, reply.body)

    async def _ping(self, environ: WSGIEnvironment, monitor_id: str, exchange: HTTPProtocol) -> Reply:
        """Answer a ping. Its body is not read."""
        headers = self._simple_pings.headers(environ)
        if headers is not None:
            attempt = await self._simple_pings.attempt(environ, monitor_id)
            if attempt.kept:
                return Reply(200, headers, OK)
            environ[ATTEMPT] = attempt
        reply = await self._pings.run(self._call, environ, exchange, get_running_loop())
        if reply.status == 200:
            self._simple_pings.learn(environ, reply.headers)
        return reply

    def _lane(self, environ: WSGIEnvironment) -> ThreadLane:
        path = environ["PATH_INFO"]
        if path == "/healthz":
            return self._health
        if path in {"/readyz", "/metrics"}:
            return self._readiness
        return self._public if is_public(path, environ.get("HTTP_HOST", "")) else self._rest

    async def _body(self, scope: Scope, environ: WSGIEnvironment, exchange: HTTPProtocol) -> bytes:
        """Read the whole body. Raises BodyTooLarge, RequestTimeout, TooManyRequests, Overloaded or ConnectionError."""
        length = environ.get("CONTENT_LENGTH")
        chunked = environ.pop("HTTP_TRANSFER_ENCODING", None) is not None
        if length == "0" or (length is None and not chunked and scope.http_version.startswith("1")):
            return b""
        limit = settings.MAX_BODY_BYTES
        if length is not None and int(length) > limit:
            raise BodyTooLarge(limit=limit)
        client = network_of(environ)
        if self._bodies[client] >= BODIES_OF_CLIENT:
            raise TooManyRequests(wait=BODY_SEC)
        self._bodies[client] += 1
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SEC):
                async for part in exchange:
                    body += part
                    self._buffered += len(part)
                    if len(body) > limit:
                        raise BodyTooLarge(limit=limit)
                    if self._buffered > BUFFERED_BYTES:
                        raise Overloaded
        except TimeoutError:
            raise RequestTimeout from None
        finally:
            self._buffered -= len(body)
            self._bodies[client] -= 1
            if not self._bodies[client]:
                del self._bodies[client]
        if length is not None and len(body) < int(length):
            raise ConnectionError
        return bytes(body)

    def _call(self, environ: WSGIEnvironment, exchange: HTTPProtocol, loop: asyncio.AbstractEventLoop) -> Reply:
        """Run Django, in a thread."""
        status, headers = 500, Headers()

        def start_response(line: str, given: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            nonlocal status, headers
            status, headers = int(line[:3]), given
            return _refuse_write

        response: Any = self._django(environ, start_response)
        with closing(response):
            if getattr(response, "streaming", False) and not _is_short(headers):
                _stream(response, exchange.response_stream(status, headers), loop)
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


def _refuse_write(_: bytes) -> object:
    raise NotImplementedError("Django does not use write()")
