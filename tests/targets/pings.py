"""Hosts that answer echo requests as a case defines, behind a TUN device in a network namespace."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import TracebackType

from tests.targets.namespace import Namespace

WORKER_V4, WORKER_V6 = "10.66.0.1", "fd66::1"
UNREACHABLE, PROHIBITED, UNROUTED = "10.67.0.0/16", "10.68.0.0/16", "10.69.0.0/16"
ROUTER_V4, ROUTER_V6 = "10.66.255.1", "fd66::ff:1"

_HEADER = struct.Struct("!BBHHH")
_ICMP, _ICMP6 = 1, 58


@dataclass(frozen=True)
class Answer:
    """The response to one echo request, sent `seconds` later; nothing if `copies` is 0.

    A reply, with `change` applied to the whole ICMP message, and from `source` if another host sends it. Or an ICMP
    `error` (type and code) by a router that quotes `quoted` bytes of the message, after `change`. Or only `raw`.
    """

    copies: int = 1
    seconds: float = 0.0
    source: str | None = None
    change: Callable[[bytes], bytes] = bytes
    error: tuple[int, int] | None = None
    quoted: int = 1_000
    checksum: bool = True
    raw: bytes | None = None
    then: tuple[Answer, ...] = ()  # more for the same request


REPLY, LOST = Answer(), Answer(copies=0)

Answers = Sequence[Answer] | Callable[[int], Answer]  # by number of the request; the last one is repeated


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(source: str, destination: str, message: bytes, *, right: bool = True) -> bytes:
    """Return an IP packet with an ICMP message, whose checksum is computed, and flipped if not `right`."""
    from_, to = ip_address(source).packed, ip_address(destination).packed
    if len(message) >= 4:
        message = message[:2] + b"\0\0" + message[4:]
        pseudo = from_ + to + struct.pack("!II", len(message), _ICMP6) if len(to) == 16 else b""
        total = checksum(pseudo + message) ^ (0 if right else 0x5555)
        message = message[:2] + total.to_bytes(2, "big") + message[4:]
    if len(to) == 16:
        return struct.pack("!IHBB", 6 << 28, len(message), _ICMP6, 64) + from_ + to + message
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, _ICMP, 0) + from_ + to
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + message


@dataclass
class PingHosts:
    """A context manager. `answers`, by address, may be changed while it runs; hosts without answers are silent.

    `requests` counts the echo requests by address.
    """

    namespace: Namespace
    answers: Mapping[str, Answers]
    requests: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> PingHosts:
        self._tunnel = self.namespace.open_tunnel("hosts")
        for command in (
            f"address add {WORKER_V4}/16 dev hosts",
            f"address add {WORKER_V6}/64 dev hosts nodad",
            "link set hosts up",
            f"route add unreachable {UNREACHABLE}",
            f"route add prohibit {PROHIBITED}",
        ):
            self.namespace.command("ip", *command.split())
        self._wake, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._wake)
        os.close(self._tunnel)

    def _serve(self) -> None:
        later: list[tuple[float, int, bytes]] = []
        numbers = itertools.count()
        while True:
            wait = max(0.0, later[0][0] - time.monotonic()) if later else None
            ready, _, _ = select.select([self._tunnel, self._wake], [], [], wait)
            if self._wake in ready:
                return
            if ready:
                try:
                    request = os.read(self._tunnel, 2_048)
                except BlockingIOError:
                    continue
                for seconds, answer in self._answers_to(request):
                    if seconds:
                        heapq.heappush(later, (time.monotonic() + seconds, next(numbers), answer))
                    else:
                        self._write(answer)
            while later and later[0][0] <= time.monotonic():
                self._write(heapq.heappop(later)[2])

    def _write(self, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # not an IP packet, as in random answers
            os.write(self._tunnel, answer)

    def _answers_to(self, request: bytes) -> Iterator[tuple[float, bytes]]:
        v6 = request[0] >> 4 == 6
        at, protocol = (40, request[6]) if v6 else ((request[0] & 15) * 4, request[9])
        if protocol != (_ICMP6 if v6 else _ICMP) or request[at] != (128 if v6 else 8):
            return
        source, target = (request[8:24], request[24:40]) if v6 else (request[12:16], request[16:20])
        worker, host = str(ip_address(source)), str(ip_address(target))
        number = self.requests[host]
        self.requests[host] += 1
        answers = self.answers.get(host, (LOST,))
        first = answers(number) if callable(answers) else answers[min(number, len(answers) - 1)]
        for answer in (first, *first.then):
            made = answer.raw or _made(answer, worker, host, request, at)
            for _ in range(answer.copies):
                yield answer.seconds, made


def _made(answer: Answer, worker: str, host: str, request: bytes, at: int) -> bytes:
    v6 = ":" in host
    if answer.error is None:
        message = answer.change(bytes([129 if v6 else 0]) + request[at + 1 :])
        return packet(answer.source or host, worker, message, right=answer.checksum)
    quoted = request[:at] + answer.change(request[at:])
    error = bytes(answer.error) + bytes(6) + quoted[: at + answer.quoted]
    router = answer.source or (ROUTER_V6 if v6 else ROUTER_V4)
    return packet(router, worker, error, right=answer.checksum)


def other_identifier(message: bytes) -> bytes:
    return message[:4] + bytes([message[4] ^ 1]) + message[5:]


def other_sequence(message: bytes) -> bytes:
    return message[:6] + bytes([message[6] ^ 1]) + message[7:]


def other_payload(message: bytes) -> bytes:
    return message[:-1] + bytes([message[-1] ^ 1])
