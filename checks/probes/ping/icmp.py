"""ICMP sockets: at most one of each family in a loop, shared by all pings in flight.

Datagram sockets where net.ipv4.ping_group_range allows them, else raw sockets, which need CAP_NET_RAW. The kernel
gives a datagram socket only replies to its own requests; a filter does the same for a raw one. Both report ICMP errors
in their error queue, with the beginning of the request.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from checks.probes.loop import Loop, Probe
from checks.probes.ping.rights import open_socket

# linux/in.h, linux/in6.h and asm-generic/socket.h; Python has no names for them.
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_SO_ATTACH_FILTER = 26
_SO_TIMESTAMPNS = 35

_HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence number
_HEADER_WORDS = struct.Struct("!4H")
_BODY_AT, _PAYLOAD_AT = 4, 8
_EXTENDED_ERROR = struct.Struct("=IBBBBII")  # sock_extended_err of linux/errqueue.h; the reporter's address follows
_FROM_ICMP = frozenset({2, 3})  # its origins, for both families
_TIMESPEC = struct.Struct("@ll")

_PAYLOAD_BYTES = 32  # all but the last two are random
_WORDS = struct.Struct(f"!{_PAYLOAD_BYTES // 2 - 1}H")
_DRAWN_BYTES = 64 * _WORDS.size  # of randomness, which costs as much as a packet each time
_PACKET_BYTES = 128  # more than an IP header with all options and a reply
_BUFFER_BYTES = 1 << 20  # the kernel gives as much of it as it allows
_MOST_AT_ONCE = 256  # packets that are read before the loop goes on
_TRIES = (False, False, False, False, True)
_SEQUENCES = 1 << 16

# Ancillary data: level, kind and value.
_Ancillary = Sequence[tuple[int, int, bytes]]


class Echo:
    """An echo request. `round_trip` is in seconds, None until its reply comes in time."""

    __slots__ = ("address", "body", "payload", "round_trip", "sent_at", "sent_ns")

    sent_at: float  # by the monotonic clock
    sent_ns: int  # by the clock of the kernel's timestamps
    body: bytes  # identifier, sequence number and payload: the same in its reply

    def __init__(self, address: str, payload: bytes) -> None:
        self.address = address
        self.payload = payload
        self.round_trip: float | None = None


class Pinger(Probe[Any]):
    """A probe that sends echo requests. `unsettled` is the number of those that have neither reply nor error."""

    __slots__ = ("unsettled",)

    unsettled: int

    @abstractmethod
    def conclude(self) -> None:
        """Read all replies. Called when none is unsettled."""

    @abstractmethod
    def take_error(self, echo: Echo, kind: int, code: int, reporter: str | None) -> None:
        """Take an ICMP error about a request: its type and code, and who sent it."""


_NOBODY: tuple[Pinger | None, Echo] = (None, Echo("", b""))


class EchoSocket:
    """The ICMP socket of one loop and family. It is open while it has users: nothing piles up in it between runs."""

    family: socket.AddressFamily
    protocol: int
    request: int
    reply: int
    errors: tuple[int, int]  # level and option that turn the error queue on

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._loop: Loop[Any]
        self._users = 0
        self._is_raw_v4 = False  # the only kind with the IP header of replies and without checksums by the kernel
        self._identifier = 0
        self._sequence = 0
        self._waiting: dict[bytes, tuple[Pinger, Echo]] = {}  # by identifier and sequence number
        self._random = b""

    def open(self, loop: Loop[Any]) -> None:
        """Add a user. Raises NoIcmpRightError and OSError."""
        if self._socket is None:
            opened = open_socket(self.family, self.protocol)
            try:
                self._prepare(opened)
            except OSError:
                opened.close()
                raise
            loop.watch_shared(opened, self._read)
            self._socket, self._loop = opened, loop
        self._users += 1

    def close(self) -> None:
        """Remove a user. Its requests are forgotten already."""
        self._users -= 1
        if not self._users and self._socket is not None:
            self._loop.unwatch(self._socket)
            self._socket.close()
            self._socket = None

    def new_payload(self) -> bytes:
        """Return random bytes whose checksum is 0, so that the one of a packet is that of its first eight bytes."""
        if not self._random:
            self._random = os.urandom(_DRAWN_BYTES)
        drawn, self._random = self._random[: _WORDS.size], self._random[_WORDS.size :]
        return drawn + _checksum(sum(_WORDS.unpack(drawn))).to_bytes(2, "big")

    def send(self, pinger: Pinger, echo: Echo) -> None:
        """Send a request, and wait for its reply until it is forgotten. Raises OSError."""
        assert self._socket is not None
        header = self._new_header()
        packet = header + echo.payload
        echo.body = packet[_BODY_AT:]
        for is_last in _TRIES:
            echo.sent_at, echo.sent_ns = time.monotonic(), time.time_ns()
            try:
                self._socket.sendto(packet, (echo.address, 0))
                break
            except OSError:  # it may be about another packet: the next call gets each of those, too
                if is_last:
                    raise
        self._waiting[header[_BODY_AT:]] = pinger, echo

    def forget(self, echo: Echo) -> None:
        """Ignore what comes for a request from now on."""
        identity = echo.body[:4]
        if self._waiting.get(identity, _NOBODY)[1] is echo:
            del self._waiting[identity]

    def _prepare(self, opened: socket.socket) -> None:
        self._is_raw_v4 = opened.type == socket.SOCK_RAW and self.family == socket.AF_INET
        if opened.type == socket.SOCK_RAW:
            self._identifier = int.from_bytes(os.urandom(2), "big")
            _filter_replies(opened, self.reply, self._identifier)
        else:
            opened.bind(("", 0))
            self._identifier = opened.getsockname()[1]
        self._sequence = int.from_bytes(os.urandom(2), "big")
        opened.setsockopt(*self.errors, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)

    def _new_header(self) -> bytes:
        """Return the header of a request that no other one in flight has. Raises OSError."""
        if len(self._waiting) == _SEQUENCES:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        while True:
            sequence = self._sequence = (self._sequence + 1) % _SEQUENCES
            checksum = _checksum((self.request << 8) + self._identifier + sequence)
            header = _HEADER.pack(self.request, 0, checksum, self._identifier, sequence)
            if header[_BODY_AT:] not in self._waiting:
                return header

    def _read(self) -> None:
        """Take replies, then errors, until the last pinger closes the socket."""
        opened = self._socket
        assert opened is not None
        # Errors are read first and taken last, so that no error precedes a reply that came before it.
        errors = _read_errors(opened)
        for _ in range(_MOST_AT_ONCE):
            try:
                packet, ancillary, _, source = opened.recvmsg(_PACKET_BYTES, 64)
            except BlockingIOError:
                break
            except OSError:
                continue  # an error of an earlier packet, which is in the error queue, too
            self._take_reply(packet, ancillary, source[0])
            if self._socket is not opened:
                return
        for error in errors:
            self._take_error(*error)
            if self._socket is not opened:
                return

    def _take_reply(self, packet: bytes, ancillary: _Ancillary, source: str) -> None:
        if self._is_raw_v4 and packet:
            packet = packet[(packet[0] & 0x0F) * 4 :]  # without the IP header
        pinger, echo = self._waiting.get(packet[_BODY_AT:_PAYLOAD_AT], _NOBODY)
        if (
            pinger is None
            or packet[_BODY_AT:] != echo.body
            or packet[0] != self.reply
            or source != echo.address
            or (self._is_raw_v4 and _checksum(sum(_HEADER_WORDS.unpack_from(packet))))
        ):
            return
        del self._waiting[echo.body[:4]]
        trip = time.monotonic() - echo.sent_at
        if ancillary:
            # When the reply came, however busy this loop is. No other time fits a clock that was set.
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            if 0 < (taken := (seconds * 10**9 + nanoseconds - echo.sent_ns) / 1e9) < trip:
                trip = taken
        if echo.sent_at + trip <= pinger.deadline:
            echo.round_trip = trip
        pinger.unsettled -= 1
        if not pinger.unsettled:
            self._loop.call(pinger, pinger.conclude)

    def _take_error(self, packet: bytes, ancillary: _Ancillary, destination: str) -> None:
        body = packet[_BODY_AT:]
        pinger, echo = self._waiting.get(body[:4], _NOBODY)
        # A router quotes at least the header of what it could not deliver.
        if (
            pinger is None
            or packet[0] != self.request
            or not echo.body.startswith(body[: len(echo.body)])
            or destination != echo.address
        ):
            return
        for level, kind, value in ancillary:
            if (level, kind) == self.errors:
                _, origin, type_, code, *_ = _EXTENDED_ERROR.unpack_from(value)
                if origin in _FROM_ICMP:
                    reporter = _address(value[_EXTENDED_ERROR.size :])
                    self._loop.call(pinger, pinger.take_error, echo, type_, code, reporter)


class EchoSocketV4(EchoSocket):
    family, protocol = socket.AF_INET, socket.IPPROTO_ICMP
    request, reply = 8, 0
    errors = (socket.IPPROTO_IP, _IP_RECVERR)


class EchoSocketV6(EchoSocket):
    family, protocol = socket.AF_INET6, socket.IPPROTO_ICMPV6
    request, reply = 128, 129
    errors = (socket.IPPROTO_IPV6, _IPV6_RECVERR)


def _read_errors(opened: socket.socket) -> Sequence[tuple[bytes, _Ancillary, str]]:
    """Return what the error queue has: the beginning of a request, the error, and where the request was sent."""
    errors: list[tuple[bytes, _Ancillary, str]] = []
    with suppress(OSError):
        while len(errors) < _MOST_AT_ONCE:
            packet, ancillary, _, destination = opened.recvmsg(_PACKET_BYTES, 256, socket.MSG_ERRQUEUE)
            errors.append((packet, ancillary, destination[0]))
    return errors


def _filter_replies(raw: socket.socket, kind: int, identifier: int) -> None:
    """Let the kernel drop all but these replies: a raw socket gets the whole host's ICMP."""
    skip_ip_header = 0xB1 if raw.family == socket.AF_INET else 0x01  # ldx 4 * ([0] & 0xf), ldx #0
    program = (
        (skip_ip_header, 0, 0, 0),
        (0x50, 0, 0, 0),  # ldb [x + 0]: the type
        (0x15, 0, 3, kind),  # jeq
        (0x48, 0, 0, 4),  # ldh [x + 4]: the identifier
        (0x15, 0, 1, identifier),  # jeq
        (0x06, 0, 0, 0xFFFFFFFF),  # ret: the whole packet
        (0x06, 0, 0, 0),  # ret: nothing
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(code)))


def _checksum(total: int) -> int:
    """Return the Internet checksum (RFC 1071) of 16-bit words with this sum. It is 0 for words that contain theirs."""
    return -total % 0xFFFF


def _address(raw: bytes) -> str | None:
    """Return the address of a struct sockaddr."""
    family = int.from_bytes(raw[:2], sys.byteorder)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8])
    return socket.inet_ntop(family, raw[8:24]) if family == socket.AF_INET6 else None
