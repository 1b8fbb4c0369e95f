"""The first part of a tcp check: a connection to one of the host's addresses."""

from __future__ import annotations

import errno
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any

from checks.probes.faults import OWN_ERRORS, errno_of, explain_errno
from checks.probes.loop import BlockedTarget, Loop, Probe
from checks.probes.target import join_host_port
from checks.probes.tcp.spec import TcpSpec
from checks.verdict import BLOCKED

# RFC 8305: an address that does not answer must not delay the next one for longer.
_STAGGER_SECONDS = 0.25
# Attempts of one check; a name may have 32 addresses that do not answer. Then the oldest is given up for the next one,
# but not before its second SYN had time to be answered.
_MOST_AT_ONCE, _PATIENCE_SECONDS = 4, 3.0
_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.EAFNOSUPPORT})

# What is waited for until the deadline, and where to look.
_NAME = "the name servers gave no answer; check the domain's name servers"
_CONNECTION = "the connection was not established; check that the host runs, and the firewalls in front of it"


class ConnectingProbe(Probe[TcpSpec]):
    """Calls `connected` once `socket` is connected. `waits_for` is what a check that times out waited for."""

    __slots__ = ("_address", "_addresses", "_attempts", "_errno", "_turn", "socket", "waits_for")

    def __init__(self, spec: TcpSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._addresses: list[str] = []  # to be tried, the next one last
        self._attempts: dict[socket.socket, float] = {}  # and when each began
        self._turn = 0
        self._address: str | None = None  # connected, or else the last one tried
        self._errno = 0  # of an attempt
        self.socket: socket.socket
        self.waits_for = _NAME

    @abstractmethod
    def connected(self) -> None:
        """Go on with the check."""

    def start(self) -> None:
        self.loop.find_addresses(self, self.spec.host, self._take_addresses)

    def close(self) -> None:
        for attempt in list(self._attempts):
            self._drop(attempt)

    def peer(self) -> str | None:
        """Return the address that was connected to, or else the last one that was tried, with its port."""
        return None if self._address is None else join_host_port(self._address, self.spec.port)

    def _take_addresses(self, addresses: Sequence[str]) -> None:
        self.waits_for = _CONNECTION
        self._addresses = list(addresses) if len(addresses) == 1 else _alternate(addresses)[::-1]
        self._try_next()

    def _try_next(self) -> None:
        """Connect to the next address. The one after it is tried once this one fails or takes long."""
        while self._addresses:
            address = self._addresses.pop()
            try:
                attempt = self.loop.connect(address, self.spec.port, socket.SOCK_STREAM)
            except BlockedTarget:
                continue
            except OSError as error:
                self._address = address
                self._note(errno_of(error, address))
                continue
            self._address = address
            self._attempts[attempt] = time.monotonic()
            self.loop.watch(self, attempt, partial(self._look, attempt, address), write=True)
            if self._addresses:
                self._arm()
            return
        if not self._attempts:
            self.fail(explain_errno(self._errno) if self._errno else BLOCKED)

    def _arm(self) -> None:
        """Try another address in a while, unless another one is tried before."""
        self._turn += 1
        self.loop.call_later(self, _STAGGER_SECONDS, partial(self._try_another, self._turn))

    def _try_another(self, turn: int) -> None:
        if self.outcome.connect_ms is not None or turn != self._turn:
            return
        if len(self._attempts) == _MOST_AT_ONCE:
            oldest, since = next(iter(self._attempts.items()))
            if time.monotonic() - since < _PATIENCE_SECONDS:
                self._arm()
                return
            self._drop(oldest)
        self._try_next()

    def _look(self, attempt: socket.socket, address: str) -> None:
        """Find out what happened to an attempt to connect."""
        # To ask a second time distinguishes a connection, an error, and an event meant for another socket.
        error = attempt.connect_ex((address, self.spec.port))
        if error in {errno.EALREADY, errno.EINPROGRESS}:
            return
        # A connection that stood and was reset at once has passed this part: a refusal would be ECONNREFUSED.
        if error and error not in {errno.EISCONN, errno.ECONNRESET, errno.EPIPE}:
            self._note(errno_of(OSError(error, ""), address))
            self._drop(attempt)
            self._try_next()
            return
        for other in list(self._attempts):
            if other is not attempt:
                self._drop(other)
        self._address = address
        self.socket = attempt
        self.outcome.connect_ms = self.elapsed_ms()
        self.connected()

    def _drop(self, attempt: socket.socket) -> None:
        del self._attempts[attempt]
        self.loop.unwatch(attempt)
        attempt.close()

    def _note(self, error: int) -> None:
        # A family that this worker cannot use explains less than what the other one met.
        if not self._errno or (self._errno not in OWN_ERRORS and error not in _NO_ROUTE):
            self._errno = error


def _alternate(addresses: Sequence[str]) -> list[str]:
    """Return the addresses with the families in turns, because one of them may not work here."""
    first = ":" in addresses[0]
    families = ([address for address in addresses if (":" in address) is v6] for v6 in (first, not first))
    return [address for address in chain.from_iterable(zip_longest(*families)) if address is not None]
