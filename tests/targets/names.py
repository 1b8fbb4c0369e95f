"""A name server whose zone is data, including faults. It answers over UDP, and truncated answers again over TCP."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class Fault(Enum):
    SILENCE = "no answer"
    NXDOMAIN = "the name does not exist"
    SERVFAIL = "the server failed"
    REFUSED = "the server refused"
    GARBAGE = "bytes that are not a DNS message, under the right ID"
    OTHER_ID = "an answer under another ID"


_RCODES = {Fault.NXDOMAIN: dns.rcode.NXDOMAIN, Fault.SERVFAIL: dns.rcode.SERVFAIL, Fault.REFUSED: dns.rcode.REFUSED}


@dataclass(frozen=True)
class Name:
    """The records of one name. Empty addresses mean that the name exists without a record of that type."""

    a: tuple[str, ...] | Fault = ()
    aaaa: tuple[str, ...] | Fault = ()
    txt: tuple[str, ...] | Fault = ()
    alias: str | None = None  # a CNAME, which is resolved in the same answer
    seconds: float = 0.0  # until the answer
    ttl: int = 60
    aaaa_ttl: int | None = None  # if it differs
    truncated: bool = False  # over UDP: the whole answer must be fetched over TCP


Zone = Mapping[str, Name]


@dataclass
class NameServer:
    """`asked` counts the questions by name, in lower case, and type. Names outside the zone do not exist.

    While `dead`, it counts and never answers.
    """

    address: str
    zone: Zone
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead: bool = False

    async def answer(self, wire: bytes, *, over_udp: bool) -> bytes | None:
        """Return the answer to send, or None for silence."""
        question = dns.message.from_wire(wire)
        asked = question.question[0]
        kind = dns.rdatatype.to_text(asked.rdtype)
        name = asked.name.to_text().lower().removesuffix(".")
        self.asked[name, kind] += 1
        if self.dead:
            return None
        response = dns.message.make_response(question, recursion_available=True)
        found = self.zone.get(name)
        if found is not None:
            await asyncio.sleep(found.seconds)
        fault = self._fill(response, asked.name.to_text(), kind)
        if fault is Fault.SILENCE:
            return None
        if fault is Fault.GARBAGE:
            return wire[:2] + b"\x80\x00\xff\xff" + b"\xff" * 20
        if fault is Fault.OTHER_ID:
            response.id ^= 1
        elif fault is not None:
            response.set_rcode(_RCODES[fault])
        if found is not None and found.truncated and over_udp:
            response.answer.clear()
            response.flags |= dns.flags.TC
        return response.to_wire(max_size=65_535)  # over UDP too: answers that are not truncated are short

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> Fault | None:
        """Add the records of the name and of its aliases."""
        seen: set[str] = set()
        while (key := name.lower().removesuffix(".")) not in seen:
            seen.add(key)
            found = self.zone.get(key)
            if found is None:
                return Fault.NXDOMAIN
            if found.alias is None:
                records = {"A": found.a, "TXT": found.txt}.get(kind, found.aaaa)
                if isinstance(records, Fault):
                    return records
                if records:
                    ttl = found.ttl if kind == "A" or found.aaaa_ttl is None else found.aaaa_ttl
                    response.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *records))
                return None
            response.answer.append(dns.rrset.from_text(name, found.ttl, "IN", "CNAME", f"{found.alias}."))
            name = f"{found.alias}."
        return None


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Its class does not inherit from the interface that it implements.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.get_running_loop().create_task(self._reply(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    async def _reply(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = await self._server.answer(data, over_udp=True)
        if reply is not None and not self._transport.is_closing():
            self._transport.sendto(reply, addr)


async def _serve_stream(server: NameServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(2))
            reply = await server.answer(await reader.readexactly(size), over_udp=False)
            if reply is not None:
                writer.write(len(reply).to_bytes(2) + reply)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the client has its answer, or the test is over
    finally:
        writer.close()


async def start_name_server(zone: Zone, host: str = "127.0.0.1") -> tuple[NameServer, asyncio.Server]:
    """Serve a zone on the loop of a ServerLoop, by both transports at one port. The caller closes the server."""
    stream, datagram = bound_pair(host)
    server = NameServer(f"{host}:{stream.getsockname()[1]}", zone)
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: _Datagrams(server), sock=datagram)
    return server, await asyncio.start_server(lambda reader, writer: _serve_stream(server, reader, writer), sock=stream)


def bound_pair(host: str) -> tuple[socket.socket, socket.socket]:
    """Return a TCP and a UDP socket bound to the same port, which reserves it. Neither listens yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        stream, datagram = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
        try:
            # The catalogue's names are all queried at once, and the default buffer has room for under 300 questions.
            datagram.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            stream.bind((host, 0))
            datagram.bind(stream.getsockname())
        except OSError as error:
            stream.close()
            datagram.close()
            if error.errno != errno.EADDRINUSE:  # a resolver uses this port for its queries: try another one
                raise
        else:
            return stream, datagram
