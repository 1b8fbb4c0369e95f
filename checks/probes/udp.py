"""The udp protocol: a datagram, and the first reply to it. Without a reply, a datagram proves nothing."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from checks.evidence import BODY_CHARS, Evidence, mask_of_body, shown_body, shown_hex
from checks.probes.faults import errno_of, explain_errno
from checks.probes.loop import Loop, Probe
from checks.probes.target import KEPT_ADDRESSES, HostPort, join_host_port, parse_host_port
from checks.spec import CheckSpec, ContentRule, ReasonCode
from checks.verdict import BLOCKED, Failure, find_broken_text_rule, own_fault, timed_out

MAX_BODY = 512
SENDS = 3
_EXAMPLE = "udp://ns1.example.com:53"
_LARGEST_DATAGRAM = 65_536
_SEEN_BYTES = 4 * BODY_CHARS  # of a reply, for evidence
# Linux's IP_RECVERR and IPV6_RECVERR, which Python 3.11 has no names for. Without them, a connected socket reports a
# closed port and ignores that the host or its network cannot be reached.
_RECEIVE_ERRORS = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}

_REFUSED = Failure(
    ReasonCode.CONNECTION_FAILURE,
    "The datagram was refused; nothing seems to listen on that port, so check the server.",
)
# Without a free local port, `connect` does nothing, and the datagram has no destination.
_NO_PORT = own_fault("no local port is free")
_OWN_WORDING = {errno.ECONNREFUSED: _REFUSED, errno.EDESTADDRREQ: _NO_PORT}


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpSpec(CheckSpec):
    """Send `body`, and judge the first reply: as lower-case hex with `as_hex`, else as UTF-8.

    `host` is in ASCII, an address without brackets.
    """

    host: str
    port: int
    body: bytes = b""
    rules: tuple[ContentRule, ...] = ()
    as_hex: bool = False


@lru_cache(maxsize=KEPT_ADDRESSES)
def parse_udp(url: str) -> HostPort:
    """Return the server of `udp://host:port`. Raises BadAddressError."""
    return parse_host_port(url, schemes=("udp",), example=_EXAMPLE)


class UdpProbe(Probe[UdpSpec]):
    """One udp check: each address of the target until one does not refuse, and that one up to three times.

    Each datagram waits for a second of its address, so a short deadline has less than three.
    """

    __slots__ = ("_address", "_addresses", "_refusal", "_reply", "_sent", "_sent_at", "_socket", "_waits")

    def __init__(self, spec: UdpSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        if len(spec.body) > MAX_BODY:
            raise ValueError(f"{len(spec.body)} bytes are more than a datagram may carry")
        self._addresses: list[str] = []  # to be tried, the last one first
        self._address = ""  # that is tried now
        self._socket: socket.socket | None = None
        self._refusal: Failure | None = None
        self._waits = False  # to send again
        self._sent = 0
        self._sent_at = 0.0
        self._reply: bytes | None = None

    def start(self) -> None:
        self.loop.find_addresses(self, self.spec.host, self._take_addresses)

    def expire(self) -> None:
        if not self._address:
            self.fail(timed_out(self.spec, "the name servers gave no answer; check the domain's name servers"))
        elif self._socket is None:
            self.loop.postpone(self)
        elif not self._sent:
            self.fail(own_fault("the system accepted no datagram"))
        else:
            count = "the datagram" if self._sent == 1 else f"none of {self._sent} datagrams"
            got = "got no reply" if self._sent == 1 else "got a reply"
            self.fail(timed_out(self.spec, f"{count} {got}; check the service, and that it answers what is sent"))

    def find_failure(self) -> Failure | None:
        if self._reply is None:
            return None
        return find_broken_text_rule(self.spec.rules, self._reply, where="The reply", as_hex=self.spec.as_hex)

    def evidence(self) -> Evidence | None:
        address, port, reply = self._address, self.spec.port, self._reply
        if not address:
            return None
        shown = join_host_port(address, port)
        facts = [("datagrams sent", str(self._sent))] if self._sent else []
        if reply is None:
            return Evidence(shown, facts=tuple(facts))
        head = reply[:_SEEN_BYTES]
        facts.append(("reply", f"{len(reply):,} bytes"))
        text, mask = head.decode("utf-8", "replace"), mask_of_body(self.spec.body)
        if reply and not mask.hides(text):
            facts.append(("reply in hex", shown_hex(head)))
        body = shown_body(text, mask, whole=len(head) == len(reply))
        return Evidence(shown, facts=tuple(facts), body=body)

    def close(self) -> None:
        self._reply = None  # a timer may keep the probe for a while
        if self._socket is not None:
            self.loop.unwatch(self._socket)
            self._socket.close()
            self._socket = None

    def _take_addresses(self, addresses: Sequence[str]) -> None:
        self._addresses = list(reversed(addresses))
        self._try_next()

    def _try_next(self) -> None:
        """Wait for a second of the next address, or fail if there is none."""
        while self._addresses:
            address = self._addresses.pop()
            if self.loop.network.permits(address):
                self._address = address
                self.loop.reserve(self, address, self._open)
                return
        self.fail(self._refusal or BLOCKED)

    def _open(self) -> None:
        try:
            self._socket = opened = self.loop.connect(self._address, self.spec.port, socket.SOCK_DGRAM)
            opened.setsockopt(*_RECEIVE_ERRORS[opened.family], 1)
        except OSError as error:
            self._give_up(error)
            return
        self.loop.watch(self, opened, self._receive)
        gap = (self.deadline - time.monotonic()) / SENDS
        for number in range(1, SENDS):
            self.loop.call_later(self, number * gap, partial(self._repeat, opened))
        self._send(opened)

    def _repeat(self, opened: socket.socket) -> None:
        if opened is self._socket and not self._waits:  # not a timer of an address that refused
            self._waits = True
            self.loop.reserve(self, self._address, partial(self._send, opened), repeats=True, pauses=False)

    def _send(self, opened: socket.socket) -> None:
        self._waits = False
        if opened is not self._socket:
            return
        self._sent_at = time.monotonic()
        try:
            opened.send(self.spec.body)
        except BlockingIOError:  # the system's buffer is full
            pass
        except OSError as error:
            self._take_error(opened, error)
        else:
            self._sent += 1

    def _receive(self) -> None:
        opened = self._socket
        assert opened is not None
        try:
            self._reply = opened.recv(_LARGEST_DATAGRAM)
        except BlockingIOError:  # what came had a wrong checksum
            return
        except OSError as error:
            self._take_error(opened, error)
            return
        now = time.monotonic()
        if now > self.deadline:
            self._reply = None
            self.expire()
            return
        elapsed_ms = int((now - self._sent_at) * 1000)
        self.outcome.ttfb_ms = self.outcome.latency_ms = elapsed_ms
        self.finish()

    def _take_error(self, opened: socket.socket, error: OSError) -> None:
        """Handle an error of a socket call, usually caused by a received ICMP message."""
        if error.errno == errno.EMSGSIZE:
            # A router asks for smaller packets. The system cuts the next try into such; the loop would be called for
            # the message until it is read.
            with contextlib.suppress(BlockingIOError):
                opened.recvmsg(1, 0, socket.MSG_ERRQUEUE)
        else:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Go on with the next address, unless the fault is ours."""
        self.close()
        number = errno_of(error, self._address)
        failure = _OWN_WORDING.get(number) or explain_errno(number)
        if failure.reason_code is ReasonCode.WORKER_LOST:
            self.fail(failure)
        else:
            self._refusal = failure
            self._try_next()
