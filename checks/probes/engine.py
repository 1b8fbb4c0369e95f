"""The probe engine: checks of any protocol in, outcomes out. Thread-safe; each thread has a run of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Generic, TypeVar

from checks.probes.http.probe import HttpProbe
from checks.probes.http.spec import HttpSpec
from checks.probes.loop import Loop, Network, Protocols
from checks.probes.reactor import Reactor
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome, CheckSpec
from core.egress import EgressGuard

K = TypeVar("K")

PROTOCOLS: Protocols = {HttpSpec: HttpProbe}
_MAX_IN_FLIGHT = 256  # bounds descriptors, and with 1 MiB of body each the memory of one run


class Service(Generic[K]):
    """Checks are submitted from any thread, and run in the one that calls `run`."""

    def __init__(self, loop: Loop[K], reactor: Reactor) -> None:
        self._loop = loop
        self._reactor = reactor
        self._inbox: deque[tuple[K, CheckSpec]] = deque()
        self._closing = False

    def submit(self, key: K, spec: CheckSpec) -> None:
        """Start the check after those submitted before it."""
        self._inbox.append((key, spec))
        self._reactor.wake()

    def close(self) -> None:
        """Make `run` return once no check is in progress."""
        self._closing = True
        self._reactor.wake()

    def run(self) -> None:
        """Raises what `on_outcome` raises; the checks in progress are dropped then."""
        self._loop.serve(self._inbox, closing=lambda: self._closing)


class ProbeEngine:
    """Runs checks. Create one per process: it keeps idle handles, the trust store and looked-up names for reuse."""

    def __init__(
        self,
        guard: EgressGuard,
        ca_file: str | None = None,
        *,
        resolver: Resolver | None = None,
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        """`ca_file` is a PEM file of the authorities to trust, None for libcurl's own default."""

        @lru_cache(maxsize=65_536)
        def permits(address: str) -> bool:
            return guard.permits(ip_address(address))

        self._network = Network(permits, ca_file, resolver or Resolver())
        self._protocols = protocols
        # A run takes a reactor from here and puts it back; deque methods are atomic.
        self._free: deque[Reactor] = deque()

    def run(
        self,
        specs: Iterable[tuple[K, CheckSpec]],
        on_outcome: Callable[[K, CheckOutcome], object],
        *,
        max_in_flight: int = _MAX_IN_FLIGHT,
    ) -> None:
        """Run all checks at once and return when the last has its outcome.

        `on_outcome(key, outcome)` is called in this thread once per spec, as each ends, and must be quick: the
        others wait for it. Whatever a target or a spec does becomes an outcome. What `specs` or `on_outcome`
        raise is passed on, and the checks in progress are dropped.
        """
        try:
            reactor = self._free.pop()
        except IndexError:
            reactor = Reactor()
        try:
            Loop(reactor, self._network, self._protocols, on_outcome=on_outcome).run(specs, max_in_flight=max_in_flight)
        finally:
            self._free.append(reactor)

    def service(
        self,
        on_outcome: Callable[[K, CheckOutcome], object],
        *,
        on_slow: Callable[[K, float], object] | None = None,
    ) -> Service[K]:
        """Return a loop that runs until it is closed, for checks that come one by one; `on_outcome` as in `run`.

        `on_slow` is called with the key and the seconds of CPU of a check whose response took long to judge.
        """
        reactor = Reactor()
        loop = Loop(reactor, self._network, self._protocols, on_outcome=on_outcome, on_slow=on_slow)
        return Service(loop, reactor)

    def check(self, spec: CheckSpec) -> CheckOutcome:
        """Run one check."""
        outcomes: list[CheckOutcome] = []
        self.run([(None, spec)], lambda _, outcome: outcomes.append(outcome))
        return outcomes[0]
