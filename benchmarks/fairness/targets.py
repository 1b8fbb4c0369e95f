"""Servers that are checked, in separate processes. They print their ports as JSON and run until they are killed.

    python -m benchmarks.fairness.targets quiet FOLDER COUNT
    python -m benchmarks.fairness.targets hostile

The quiet ones switch at known times: each line of standard input is a JSON list of [time in seconds since the epoch,
number, up]. The target with number N has the address 127.0.20.N in each protocol, so that only hostile tenants make it
share a limit of an address. Down, it answers at once that it is broken. https://FOLDER/ca.pem is its authority.

Each hostile kind has its own port: `hanging` never answers, `flapping` fails every other request of a path,
`huge`, `json` and `location` cost a checker time, and `fast` takes every request.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from time import time
from typing import Any, cast

NETWORK = "127.0.20"
BACKLOG = 4096
READY, BROKEN = b"ready", b"broken"
JSON_DEPTH = 64


def address_of(number: int) -> str:
    return f"{NETWORK}.{number}"


class Timetable:
    """When each target is up. All are up before their first switch."""

    def __init__(self) -> None:
        self._switches: dict[int, list[tuple[float, bool]]] = {}

    def add(self, switches: list[tuple[float, int, bool]]) -> None:
        for at, number, up in sorted(switches):
            self._switches.setdefault(number, []).append((at, up))

    def is_up(self, number: int, at: float) -> bool:
        return next((up for start, up in reversed(self._switches.get(number, ())) if start <= at), True)

    def word(self, address: str) -> bytes:
        return READY if self.is_up(int(address.rpartition(".")[2]), time()) else BROKEN


def response(status: int, body: bytes, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", "Connection: close", *headers, "\r\n")
    return "\r\n".join(lines).encode() + body


class Quiet(asyncio.Protocol):
    """An http target or, with `at_once`, one that sends its text when a client connects."""

    def __init__(self, timetable: Timetable, *, at_once: bool) -> None:
        self._timetable, self._at_once, self._seen = timetable, at_once, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address: str = transport.get_extra_info("sockname")[0]
        if self._at_once:
            transport.write(self._timetable.word(self._address))
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if b"\r\n\r\n" not in self._seen:
            return
        word = self._timetable.word(self._address)
        body = b"" if self._seen.startswith(b"HEAD") else json.dumps({"state": word.decode()}).encode()
        self._transport.write(response(200 if word == READY else 500, body))
        self._transport.close()


class QuietDatagrams(asyncio.DatagramProtocol):
    """A UDP service, or a name server with one A record for each name."""

    def __init__(self, timetable: Timetable, address: str, *, names: bool) -> None:
        self._timetable, self._address, self._names = timetable, address, names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # asyncio's own is not derived from it

    def datagram_received(self, data: bytes, addr: Any) -> None:
        word = self._timetable.word(self._address)
        self._transport.sendto(_answer_name(data, found=word == READY) if self._names else word, addr)


def _answer_name(query: bytes, *, found: bool) -> bytes:
    question = query[12 : query.index(b"\0", 12) + 5]
    # Response, recursion available, NOERROR or NXDOMAIN; one question, the answers.
    head = query[:2] + b"\x81" + (b"\x80" if found else b"\x83") + b"\0\1" + (b"\0\1" if found else b"\0\0") + bytes(4)
    # Pointer to the name, A, IN, TTL, address.
    answer = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x33\x64\x01"
    return head + question + (answer if found else b"")


class Hostile(asyncio.Protocol):
    def __init__(self, kind: str, seen: Counter[bytes]) -> None:
        self._kind, self._seen, self._data = kind, seen, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._kind == "hanging":
            return
        self._data += data
        if b"\r\n\r\n" in self._data:
            path = self._data.split(b" ", 2)[1]
            self._seen[path] += 1
            fails = self._kind == "flapping" and self._seen[path] % 2 == 0
            self._transport.write(response(500 if fails else 200, b"") if self._kind in _PLAIN else _BAITS[self._kind])
            self._transport.close()


_PLAIN = {"flapping", "fast"}
_BAITS = {
    "huge": response(200, b"x" * (1_048_576 - 16)),
    "json": response(
        200,
        b'{"a":' * JSON_DEPTH + b"[" + b"1," * 500_000 + b"1]" + b"}" * JSON_DEPTH,
        "Content-Type: application/json",
    ),
    "location": response(503, b"", "Location: " + "?" * 60_000),
}
KINDS = ("hanging", *_BAITS, *sorted(_PLAIN))


async def serve_quiet(folder: Path, count: int) -> dict[str, int]:
    from tests.targets.certificates import Certificates

    loop, timetable = asyncio.get_running_loop(), Timetable()
    ports = {}
    contexts = {"http": None, "tcp": None, "tls": _certificate(Certificates(folder), count)}
    for kind, context in contexts.items():
        listening = socket.create_server(("0.0.0.0", 0), backlog=BACKLOG)
        ports[kind] = listening.getsockname()[1]
        make = partial(Quiet, timetable, at_once=kind != "http")
        await loop.create_server(make, sock=listening, ssl=context, backlog=BACKLOG)
    for kind in ("udp", "dns"):
        ports[kind] = 0
        for number in range(1, count + 1):
            address = address_of(number)
            service = partial(QuietDatagrams, timetable, address, names=kind == "dns")
            transport, _ = await loop.create_datagram_endpoint(service, local_addr=(address, ports[kind]))
            ports[kind] = transport.get_extra_info("sockname")[1]

    def read() -> None:
        if line := sys.stdin.readline():
            timetable.add([(at, number, up) for at, number, up in json.loads(line)])
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, read)
    return ports


def _certificate(certificates: Any, count: int) -> ssl.SSLContext:
    context: ssl.SSLContext = certificates.for_host(*(address_of(number) for number in range(1, count + 1)))
    return context


async def serve_hostile() -> dict[str, int]:
    ports = {}
    seen: Counter[bytes] = Counter()
    for kind in KINDS:
        listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        ports[kind] = listening.getsockname()[1]
        make = partial(Hostile, kind, seen)
        await asyncio.get_running_loop().create_server(make, sock=listening, backlog=BACKLOG)
    return ports


async def main() -> None:
    quiet = sys.argv[1] == "quiet"
    ports = await (serve_quiet(Path(sys.argv[2]), int(sys.argv[3])) if quiet else serve_hostile())
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
