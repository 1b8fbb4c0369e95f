"""A resolver that plays scripts: its answers by UDP or TCP, including misbehaviour."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from tests.targets.names import bound_pair

Records = Iterable[tuple[str, str, str]]  # owner, type, data


@dataclass(frozen=True)
class Asked:
    """A question: the number of earlier ones by the same transport, and its message."""

    wire: bytes
    number: int
    by_tcp: bool = False

    @property
    def message(self) -> dns.message.Message:
        return dns.message.from_wire(self.wire)


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Elsewhere:
    """By UDP: send it from another port."""

    wire: bytes


@dataclass(frozen=True)
class Raw:
    """By TCP: send it without a length."""

    wire: bytes


class Hang:
    """By TCP: keep the connection open."""


class Reset:
    """By TCP: reset the connection."""


Step = bytes | Pause | Elsewhere | Raw | Hang | Reset


@dataclass(frozen=True)
class Resolving:
    """The answers to a question, in order. Without `tcp` the TCP port is closed."""

    udp: Callable[[Asked], Iterable[Step]]
    tcp: Callable[[Asked], Iterable[Step]] | None = None


def reply(
    asked: Asked,
    *records: tuple[str, str, str],
    rcode: int = 0,
    flags: int = dns.flags.RA,
    ttl: int = 300,
    change: Callable[[dns.message.Message], object] | None = None,
) -> bytes:
    """Return a reply to the question with these records in its answer section, after `change`."""
    return asked.wire[:2] + _reply(asked.wire[2:], records, rcode, flags, ttl, change)


@cache
def _reply(
    asked: bytes,
    records: tuple[tuple[str, str, str], ...],
    rcode: int,
    flags: int,
    ttl: int,
    change: Callable[[dns.message.Message], object] | None,
) -> bytes:
    """Return the reply without its id. Cached, as all cases share one thread and each message takes a millisecond."""
    message = dns.message.make_response(dns.message.from_wire(b"\0\0" + asked))
    message.flags |= dns.flags.Flag(flags)
    message.set_rcode(dns.rcode.Rcode(rcode))
    for owner, kind, data in records:
        message.answer.append(dns.rrset.from_text(owner, ttl, "IN", kind, data))
    if change is not None:
        change(message)
    return message.to_wire(max_size=65_535)[2:]


def saying(*records: tuple[str, str, str], **given: Any) -> Resolving:
    """Return a resolver that answers with these records."""

    def answer(asked: Asked) -> Iterable[Step]:
        return [reply(asked, *records, **given)]

    return Resolving(answer, answer)


@dataclass
class ResolverServer:
    """One port for both transports, on the loop of a ServerLoop. `asked`: the received questions."""

    script: Resolving
    host: str
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    senders: list[tuple[str, int]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self) -> asyncio.Server:
        """Return the server, which the caller must close. Without `tcp` its port refuses connections."""
        stream, datagram = bound_pair(self.host)
        self.port = stream.getsockname()[1]
        datagram.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: _Datagrams(self), sock=datagram)
        return await asyncio.start_server(self._serve_stream, sock=stream, start_serving=self.script.tcp is not None)

    def take(self, wire: bytes, *, by_tcp: bool) -> Asked:
        asked = Asked(wire, sum(earlier.by_tcp is by_tcp for earlier in self.asked), by_tcp)
        self.asked.append(asked)
        return asked

    def begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.script.tcp is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            try:
                size = int.from_bytes(await reader.readexactly(2), "big")
                asked = self.take(await reader.readexactly(size), by_tcp=True)
                for step in self.script.tcp(asked):
                    match step:
                        case bytes():
                            writer.write(len(step).to_bytes(2, "big") + step)
                        case Raw(wire):
                            writer.write(wire)
                        case Pause(seconds):
                            await asyncio.sleep(seconds)
                        case Hang():
                            await reader.read()
                        case Reset():
                            raw: socket.socket = writer.get_extra_info("socket")
                            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            writer.transport.abort()
                        case Elsewhere():
                            raise TypeError(step)
                    await writer.drain()
            finally:
                writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: ResolverServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.senders.append(addr)
        self._server.begin(self._play(self._server.take(data, by_tcp=False), addr))

    async def _play(self, asked: Asked, addr: tuple[str, int]) -> None:
        for step in self._server.script.udp(asked):
            match step:
                case bytes() if not self._transport.is_closing():
                    self._transport.sendto(step, addr)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Elsewhere(wire):
                    family = socket.AF_INET6 if ":" in self._server.host else socket.AF_INET
                    with socket.socket(family, socket.SOCK_DGRAM) as other:
                        other.sendto(wire, addr)
