"""The probe engine: checks in, outcomes out. Safe to use from several threads, each with a run of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Generic, TypeVar

from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Transfer
from checks.probes.loop import Loop
from checks.probes.reactor import Reactor
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome
from core.egress import EgressGuard
from core.version import product_version

K = TypeVar("K")

_MAX_IN_FLIGHT = 256  # bounds descriptors, and with 1 MiB of body each the memory of one run


class Service(Generic[K]):
    """Checks are submitted from any thread, and run in the one that calls `run`."""

    def __init__(self, loop: Loop[K], reactor: Reactor) -> None:
        self._loop = loop
        self._reactor = reactor
        self._inbox: deque[tuple[K, HttpSpec]] = deque()
        self._closing = False

    def submit(self, key: K, spec: HttpSpec) -> None:
        """Start the check as soon as those before it are started."""
        self._inbox.append((key, spec))
        self._reactor.ring()

    def close(self) -> None:
        """Have `run` return when nothing is under way any more."""
        self._closing = True
        self._reactor.ring()

    def run(self) -> None:
        """Raises what `on_outcome` raises; the checks still under way are dropped then."""
        self._loop.serve(self._inbox, closing=lambda: self._closing)


class ProbeEngine:
    """Runs checks on libcurl. Make one per process: it keeps idle handles, trust store and names for reuse."""

    def __init__(
        self, guard: EgressGuard, ca_file: str | None = None, *, resolver: Resolver | None = None
    ) -> None:
        """`ca_file` is a PEM file of the authorities to trust, None for libcurl's own default."""

        @lru_cache(maxsize=65_536)
        def permits(address: str) -> bool:
            return guard.permits(ip_address(address))

        self._new_transfer = partial(Transfer, permits=permits, ca_file=ca_file, version=product_version())
        self._resolver = resolver or Resolver()
        # A run takes a reactor with its transfers from here and puts it back; deque methods are atomic.
        self._free: deque[tuple[Reactor, list[Transfer]]] = deque()

    def run(
        self,
        specs: Iterable[tuple[K, HttpSpec]],
        on_outcome: Callable[[K, CheckOutcome], object],
        *,
        max_in_flight: int = _MAX_IN_FLIGHT,
    ) -> None:
        """Run all checks at once and return when the last has its outcome.

        `on_outcome(key, outcome)` is called in this thread once per spec, as each ends, and must be quick: the
        others wait meanwhile. Whatever a target or a spec does becomes an outcome. What `specs` or
        `on_outcome` raise is passed on, and the checks still under way are dropped.
        """
        try:
            reactor, idle = self._free.pop()
        except IndexError:
            reactor, idle = Reactor(), []
        try:
            self._loop(reactor, idle, on_outcome).run(specs, max_in_flight=max_in_flight)
        finally:
            self._free.append((reactor, idle))

    def service(
        self,
        on_outcome: Callable[[K, CheckOutcome], object],
        *,
        on_slow: Callable[[K, float], object] | None = None,
    ) -> Service[K]:
        """A loop that runs until it is closed, for checks that come one by one; `on_outcome` as in `run`.

        `on_slow` is called with the key and the seconds of CPU of a check whose response took long to judge.
        """
        reactor = Reactor()
        return Service(self._loop(reactor, [], on_outcome, on_slow), reactor)

    def _loop(
        self,
        reactor: Reactor,
        idle: list[Transfer],
        on_outcome: Callable[[K, CheckOutcome], object],
        on_slow: Callable[[K, float], object] | None = None,
    ) -> Loop[K]:
        return Loop(
            reactor,
            idle,
            new_transfer=self._new_transfer,
            resolver=self._resolver,
            on_outcome=on_outcome,
            on_slow=on_slow,
        )

    def check(self, spec: HttpSpec) -> CheckOutcome:
        """Run one check."""
        outcomes: list[CheckOutcome] = []
        self.run([(None, spec)], lambda _, outcome: outcomes.append(outcome))
        return outcomes[0]
