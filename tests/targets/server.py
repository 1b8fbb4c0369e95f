"""A server that plays scripts: what it sends, when it stalls, and how it hangs up are data.

A script is a sequence of steps. Bytes are sent as they are; the rest are below. Without a last step that says
otherwise the connection is closed in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tests.targets.names import NameServer, Zone, start_name_server


@dataclass(frozen=True)
class Hang:
    """Send nothing more until the client hangs up."""


@dataclass(frozen=True)
class Reset:
    """Hang up with a TCP reset."""


@dataclass(frozen=True)
class HangUp:
    """Close the sending side in TCP alone: TLS, if there is any, says nothing of an end."""


@dataclass(frozen=True)
class Repeat:
    """Send `chunk` every `seconds` until the client hangs up."""

    chunk: bytes
    seconds: float = 0.0


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Listen:
    """Wait for the client's first bytes, whatever they are; for a script that is played unasked."""


@dataclass(frozen=True)
class Unasked:
    """A script that is played as soon as the connection stands, before any request is read."""

    script: Script


Step = bytes | Hang | HangUp | Reset | Repeat | Pause | Listen
Script = Sequence[Step]
Routes = Script | Unasked | Mapping[str, Script] | Callable[["Seen"], Script]


@dataclass(frozen=True)
class Seen:
    """A request as it came. Header names are in lower case, values in order of arrival."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


def answer(
    status: int | str = 200, body: bytes = b"", *headers: str, length: int | None = None, reason: str = "Whatever"
) -> bytes:
    """A whole response; `length` lies about the body's."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> Script:
    return [answer(status, b"", f"Location: {location}")]


@dataclass
class Site:
    """One listening address and what it was asked."""

    host: str
    port: int
    routes: Routes
    scheme: str
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        name = host or (f"[{self.host}]" if ":" in self.host else self.host)
        return f"{self.scheme}://{name}:{self.port}{path}"

    def script_for(self, request: Seen) -> Script:
        if isinstance(self.routes, Unasked):
            raise TypeError("an unasked script answers no request")
        if callable(self.routes):
            return self.routes(request)
        if isinstance(self.routes, Mapping):
            return self.routes.get(request.path, [answer(404)])
        return self.routes


class TargetServer:
    """An event loop in a thread of its own, with any number of sites. A context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="targets", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._datagrams: list[asyncio.DatagramTransport] = []
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> TargetServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def serve(
        self, routes: Routes, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> Site:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=256)
        site = Site(host, listening.getsockname()[1], routes, "https" if tls is not None else "http")

        async def start() -> None:
            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = self._loop.create_task(_play(site, reader, writer))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

            self._servers.append(await asyncio.start_server(connected, sock=listening, ssl=tls))

        asyncio.run_coroutine_threadsafe(start(), self._loop).result(60)
        return site

    def serve_names(self, zone: Zone) -> NameServer:
        """A name server of its own at `address`."""

        async def start() -> NameServer:
            server, datagrams, streams = await start_name_server(zone)
            self._datagrams.append(datagrams)
            self._servers.append(streams)
            return server

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result(60)

    async def _stop(self) -> None:
        for datagrams in self._datagrams:
            datagrams.close()
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # connections, of the name servers too
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports close their sockets


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "replace")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name.lower(), value.strip()))
    length = next((int(value) for name, value in headers if name == "content-length"), 0)
    return Seen(method, path, tuple(headers), await reader.readexactly(length))


async def _play(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    site.connections += 1
    # A client that has seen enough hangs up at any point.
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        try:
            if isinstance(site.routes, Unasked):
                script = site.routes.script
            else:
                request = await _read_request(reader)
                site.seen.append(request)
                script = site.script_for(request)
            for step in script:
                await _do(step, reader, writer)
        finally:
            writer.close()


async def _do(step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    match step:
        case bytes():
            writer.write(step)
            await writer.drain()
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case Listen():
            await reader.read(1)
        case Hang():
            await reader.read()
        case Repeat(chunk, seconds):
            while not writer.is_closing():
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(seconds)
        case HangUp():
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
            await reader.read()
        case Reset():
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
