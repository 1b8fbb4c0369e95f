"""One ping: echo requests to one address after the other until one does not refuse them, and what comes back."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from checks.evidence import Evidence
from checks.probes.faults import CONNECT_FAULTS
from checks.probes.loop import Loop
from checks.probes.ping.icmp import Echo, EchoSocket, EchoSocketV4, EchoSocketV6, Pinger
from checks.probes.ping.rights import HOW_TO_ALLOW, NoIcmpRightError
from checks.probes.ping.spec import PingSpec
from checks.probes.target import literal_form
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault, timed_out

_INTERVAL_SECONDS = 0.2
_GRID_SECONDS = 0.01  # packets that are due together are sent together: each wake-up of the loop costs CPU
_LEAST_SECONDS = 0.05  # for all packets, after a slow name server or another address
_RETRY_SECONDS = 0.02  # after the socket was full

_HOST, _NETWORK = CONNECT_FAULTS[errno.EHOSTUNREACH], CONNECT_FAULTS[errno.ENETUNREACH]
_REFUSED = "pings to it are rejected; allow ICMP echo requests in its firewalls and those in front of it"
_TOO_FAR = "the packets were forwarded in a loop; check the routes to it"
# By ICMP type and code (RFC 792, 1122, 1812, 4443). Those not named end no ping: they are not about reaching the host.
_ICMP_FAULTS = {
    **{(3, code): _NETWORK for code in (0, 6, 11)},
    **{(3, code): _HOST for code in (1, 5, 7, 8, 12)},
    **{(3, code): _REFUSED for code in (2, 3, 9, 10, 13, 14, 15)},  # 3 is what REJECT of iptables says
    (11, 0): _TOO_FAR,
}
_ICMP6_FAULTS = {
    **{(1, code): _NETWORK for code in (0, 2)},
    **{(1, code): _REFUSED for code in (1, 4, 5, 6)},
    (1, 3): _HOST,
    (3, 0): _TOO_FAR,
}
# By errno of a system call; other errors are our own faults.
_SEND_FAULTS = {
    errno.EHOSTUNREACH: _HOST,
    errno.EHOSTDOWN: _HOST,
    errno.ENETUNREACH: _NETWORK,
    errno.ENETDOWN: _NETWORK,
    errno.EADDRNOTAVAIL: _NETWORK,
    errno.EINVAL: "no packet can be sent to this address; use the address of one host",
    errno.EACCES: "no packet can be sent to this address; use the address of one host",  # broadcast
    errno.EAFNOSUPPORT: CONNECT_FAULTS[errno.EAFNOSUPPORT],
}
_FULL = frozenset({errno.EAGAIN, errno.ENOBUFS})


class PingProbe(Pinger):
    """`_echoes` are the requests that were sent to `_address`, in order."""

    __slots__ = (
        *("_address", "_addresses", "_echoes", "_fault", "_grid", "_interval"),
        *("_payload", "_refusal", "_refused", "_reporter", "_socket"),
    )

    spec: PingSpec

    def __init__(self, spec: PingSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._addresses: list[str] | None = None  # to be tried, the next one at the end; None until they are known
        self._address: str | None = None
        self._socket: EchoSocket | None = None
        self._payload = b""
        self._echoes: list[Echo] = []
        self._interval = 0.0
        self._grid = _GRID_SECONDS
        self._refused = 0  # packets
        self._fault: str | None = None  # why, and who said so
        self._reporter: str | None = None
        self._refusal: tuple[Failure, str, list[Echo], str | None] | None = None  # with address, requests and reporter

    def start(self) -> None:
        self.loop.find_addresses(self, self.spec.host, self._take_addresses)

    def expire(self) -> None:
        if self._addresses is None:
            self.fail(timed_out(self.spec, "the name servers gave no answer; check the domain's name servers"))
        elif len(self._echoes) < self.spec.packets:
            self.fail(own_fault("its packets could not be sent in time"))
        else:
            self.conclude()

    def find_failure(self) -> Failure | None:
        return None  # `conclude` has counted the replies

    def evidence(self) -> Evidence:
        return Evidence(address=self._address, facts=tuple(self._facts()))

    def close(self) -> None:
        if self._socket is not None:
            if self.unsettled:
                for echo in self._echoes:
                    self._socket.forget(echo)
            self._socket.close()
            self._socket = None

    def conclude(self) -> None:
        """End because all packets are settled, or the time is up."""
        spec, returned = self.spec, self._measure()
        if returned >= spec.min_replies:
            self.finish()
            return
        if self._fault is not None and not returned:
            self.fail(_no_reply(self._fault))
            return
        came = f"{returned} of {spec.packets} packets returned ({self.outcome.loss} % lost)"
        if self._fault is not None:
            failure = f"Only {came}, {spec.min_replies} required: {self._fault}."
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, failure))
            return
        needed = f", {spec.min_replies} required" if returned else ""
        self.fail(timed_out(spec, f"{came}{needed}; check the host, and whether firewalls let ICMP through"))

    def take_error(self, echo: Echo, kind: int, code: int, reporter: str | None) -> None:
        assert self._socket is not None
        fault = (_ICMP6_FAULTS if ":" in echo.address else _ICMP_FAULTS).get((kind, code))
        if fault is None:
            return
        self._socket.forget(echo)
        self.unsettled -= 1
        self._refused += 1
        # A private router belongs to the network of the worker, or to the one behind it.
        is_public = reporter is not None and self.loop.network.permits(reporter)
        self._fault, self._reporter = fault, reporter if is_public else None
        if self.spec.packets - self._refused < self.spec.min_replies:
            self._refuse(echo.address, fault, self._reporter)
        elif not self.unsettled:
            self.conclude()

    def _take_addresses(self, addresses: Sequence[str]) -> None:
        if self.deadline - time.monotonic() < _LEAST_SECONDS:
            self.fail(timed_out(self.spec, "the time was used up before a packet could be sent; raise the timeout"))
        else:
            # An IPv4 address may come a second time, mapped into IPv6.
            distinct = dict.fromkeys(filter(None, map(literal_form, addresses)))
            self._addresses = list(distinct)[::-1]
            self._try_next()

    def _try_next(self) -> None:
        """Send to the next address. End if none is left, or no time for it."""
        assert self._addresses is not None
        self.close()
        while self._addresses and (self._refusal is None or self.deadline - time.monotonic() > _LEAST_SECONDS):
            address = self._addresses.pop()
            if self.loop.network.permits(address):
                self._begin(address)
                return
        if self._refusal is None:
            self.fail(BLOCKED)
            return
        failure, self._address, self._echoes, self._reporter = self._refusal
        self._measure()
        self.fail(failure)

    def _begin(self, address: str) -> None:
        self._address = address
        self._echoes, self.unsettled = [], self.spec.packets
        self._refused, self._fault, self._reporter = 0, None, None
        shared: EchoSocket = self.loop.resources[EchoSocketV6 if ":" in address else EchoSocketV4]
        try:
            shared.open(self.loop)
        except NoIcmpRightError:
            self.fail(own_fault(f"this worker may not send pings; {HOW_TO_ALLOW}"))
            return
        except OSError as error:
            self._take_send_error(address, error)
            return
        self._socket, self._payload = shared, shared.new_payload()
        # The last request has half of the time for its way back.
        most = (self.deadline - time.monotonic()) / 2 / max(1, self.spec.packets - 1)
        self._interval = min(_INTERVAL_SECONDS, most)
        self._grid = min(_GRID_SECONDS, self._interval / 10)
        self._send(address)

    def _send(self, address: str) -> None:
        if address != self._address or self._socket is None:
            return  # the timer of an earlier address
        echo = Echo(address, self._payload)
        try:
            self._socket.send(self, echo)
        except OSError as error:
            if error.errno in _FULL:
                self.loop.call_later(self, _RETRY_SECONDS, partial(self._send, address))
            else:
                self._take_send_error(address, error)
            return
        self._echoes.append(echo)
        if len(self._echoes) < self.spec.packets:
            due = math.ceil((echo.sent_at + self._interval) / self._grid) * self._grid
            self.loop.call_later(self, due - echo.sent_at, partial(self._send, address))

    def _take_send_error(self, address: str, error: OSError) -> None:
        fault = _SEND_FAULTS.get(error.errno or 0)
        if fault is None:
            self.fail(own_fault(os.strerror(error.errno or 0)))
        else:
            self._refuse(address, fault, None)

    def _refuse(self, address: str, fault: str, reporter: str | None) -> None:
        """Note why this address failed, and try the next one."""
        # An answer says more than the lack of a route to another address.
        if self._refusal is None or self._echoes:
            self._refusal = _no_reply(fault), address, self._echoes, reporter
        self._try_next()

    def _measure(self) -> int:
        """Fill in the loss of the packets that were sent, and the mean round trip. Return how many returned."""
        found = self._round_trips()
        if self._echoes:
            self.outcome.loss = round(100 * (1 - len(found) / len(self._echoes)))
        if found:
            self.outcome.latency_ms = math.ceil(sum(found) / len(found) * 1000)
        return len(found)

    def _round_trips(self) -> list[float]:
        return [echo.round_trip for echo in self._echoes if echo.round_trip is not None]

    def _facts(self) -> Iterator[tuple[str, str]]:
        found = self._round_trips()
        if self._echoes:
            yield "packets", f"{len(self._echoes)} sent, {len(found)} returned, {self.outcome.loss} % lost"
            yield (
                "round trips",
                ", ".join("lost" if echo.round_trip is None else _ms(echo.round_trip) for echo in self._echoes),
            )
        if found:
            mean = sum(found) / len(found)
            yield "minimum, mean, maximum", f"{_ms(min(found))}, {_ms(mean)}, {_ms(max(found))}"
        if len(found) > 1:
            # Between one packet and the next, as RFC 3550 has it, without its smoothing.
            yield "jitter", _ms(sum(abs(after - before) for before, after in pairwise(found)) / (len(found) - 1))
        if self._reporter is not None:
            yield "reported by", self._reporter


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _no_reply(fault: str) -> Failure:
    return Failure(ReasonCode.CONNECTION_FAILURE, f"No reply: {fault}.", by_network=True)
