"""A server that plays scripts: what it sends, when it stalls, and how it closes connections are data.

A script is a sequence of steps. Bytes are sent unchanged; the other steps are below. The connection is
closed cleanly at the end unless the last step does otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.targets.datagrams import Datagrams, DatagramServer, Service
from tests.targets.loop import ServerLoop
from tests.targets.names import NameServer, Zone, start_name_server
from tests.targets.resolvers import ResolverServer, Resolving


@dataclass(frozen=True)
class Hang:
    """Send nothing more until the client hangs up."""


@dataclass(frozen=True)
class Reset:
    """Hang up with a TCP reset."""


@dataclass(frozen=True)
class HangUp:
    """Close the sending side of TCP only, without the closing alert of TLS."""


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
    """Wait for the client's first bytes and ignore them; for a script that starts before a request."""


@dataclass(frozen=True)
class Expect:
    """Read these bytes; hang up if others arrive."""

    data: bytes


@dataclass(frozen=True)
class StartTls:
    """Start TLS on the open connection, which begins in plain text, with this certificate or that of the place."""

    context: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Unasked:
    """A script that is played as soon as the connection is established, before any request is read.

    A function returns the script for the destination address.
    """

    script: Script | Callable[[str], Script]


Step = bytes | Hang | HangUp | Reset | Repeat | Pause | Listen | Expect | StartTls
Script = Sequence[Step]
Routes = Script | Unasked | Mapping[str, Script] | Callable[["Seen"], Script]


@dataclass(frozen=True)
class Seen:
    """A received request. Header names are in lower case, values in order of arrival."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


def answer(
    status: int | str = 200, body: bytes = b"", *headers: str, length: int | None = None, reason: str = "Whatever"
) -> bytes:
    """Return a whole response; `length` overrides the Content-Length."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> Script:
    return [answer(status, b"", f"Location: {location}")]


@dataclass
class Site:
    """One listening address and its requests."""

    host: str
    port: int
    routes: Routes
    scheme: str
    tls: ssl.SSLContext | None = None
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


class TargetServer(ServerLoop):
    """Any number of sites, in a separate thread."""

    def __init__(self) -> None:
        super().__init__("targets")
        self._connections: set[asyncio.Task[None]] = set()

    def serve(
        self, routes: Routes, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> Site:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=256)
        site = Site(host, listening.getsockname()[1], routes, "https" if tls is not None else "http", tls)
        starts_plain = isinstance(routes, Unasked) and not callable(routes.script) and StartTls() in routes.script

        async def start() -> None:
            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.get_running_loop().create_task(_play(site, reader, writer))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

            self.servers.append(
                await asyncio.start_server(connected, sock=listening, ssl=None if starts_plain else tls)
            )

        self.run(start())
        return site

    def serve_datagrams(
        self, script: Datagrams | Callable[[str], Datagrams], *, host: str = "127.0.0.1", port: int = 0
    ) -> Service:
        async def start() -> Service:
            server = DatagramServer(asyncio.get_running_loop(), script, host, port)
            self.closing.callback(server.close)
            server.start()
            return server.service

        return self.run(start())

    def serve_names(self, zone: Zone) -> NameServer:
        """Start a name server, whose `address` is host and port."""

        async def start() -> NameServer:
            server, streams = await start_name_server(zone)
            self.servers.append(streams)
            return server

        return self.run(start())

    def serve_resolver(self, script: Resolving, *, host: str = "127.0.0.1") -> ResolverServer:
        """Start a resolver that plays a script, for both transports."""

        async def start() -> ResolverServer:
            server = ResolverServer(script, host)
            self.servers.append(await server.start())
            return server

        return self.run(start())


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
    # Clients may hang up at any point.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        try:
            if isinstance(site.routes, Unasked):
                script = site.routes.script
                if callable(script):
                    script = script(writer.get_extra_info("sockname")[0])
            else:
                request = await _read_request(reader)
                site.seen.append(request)
                script = site.script_for(request)
            for step in script:
                await _do(step, site, reader, writer)
        finally:
            writer.close()


def _socket(writer: asyncio.StreamWriter) -> socket.socket:
    raw: socket.socket | None = writer.get_extra_info("socket")
    if raw is None:
        raise ConnectionError("the client has hung up")
    return raw


async def _do(step: Step, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    match step:
        case bytes():
            writer.write(step)
            await writer.drain()
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case Listen():
            await reader.read(1)
        case Expect(data):
            if (came := await reader.readexactly(len(data))) != data:
                raise ConnectionError(came)
        case StartTls(context):
            context = context or site.tls
            assert context is not None
            await writer.start_tls(context)
        case Hang():
            await reader.read()
        case Repeat(chunk, seconds):
            while not writer.is_closing():
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(seconds)
        case HangUp():
            _socket(writer).shutdown(socket.SHUT_WR)
            await reader.read()
        case Reset():
            _socket(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
