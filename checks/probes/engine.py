"""The probe engine: checks of any protocol in, outcomes out. Thread-safe; each thread has its own loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import TypeVar

from checks.probes.dns.probe import DnsProbe
from checks.probes.dns.spec import DnsSpec
from checks.probes.http.probe import HttpProbe
from checks.probes.http.spec import HttpSpec
from checks.probes.loop import Loop, Network, Party, Protocols
from checks.probes.ping.probe import PingProbe
from checks.probes.ping.spec import PingSpec
from checks.probes.rate_limit import RateLimiter
from checks.probes.reactor import Reactor
from checks.probes.resolver import Resolver
from checks.probes.tcp.probe import TcpProbe
from checks.probes.tcp.spec import TcpSpec
from checks.probes.udp import UdpProbe, UdpSpec
from checks.spec import CheckOutcome, CheckSpec
from core.egress import EgressGuard
from core.registry import require_complete

K = TypeVar("K")

PROTOCOLS: Protocols = {
    HttpSpec: HttpProbe,
    TcpSpec: TcpProbe,
    UdpSpec: UdpProbe,
    PingSpec: PingProbe,
    DnsSpec: DnsProbe,
}
require_complete(*PROTOCOLS.values())


class ProbeEngine:
    """Runs checks. Create one per process: it keeps idle handles, the trust store and looked-up names for reuse."""

    def __init__(
        self,
        guard: EgressGuard,
        ca_file: str | None = None,
        *,
        resolver: Resolver | None = None,
        rate_limiter: RateLimiter | None = None,
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        """`ca_file` is a PEM file of the authorities to trust, None for libcurl's own default.

        The default `rate_limiter` counts the checks of this engine alone.
        """

        @lru_cache(maxsize=65_536)
        def permits(address: str) -> bool:
            return guard.permits(ip_address(address))

        self._network = Network(permits, ca_file, resolver or Resolver(), rate_limiter or RateLimiter())
        self._protocols = protocols
        # A run takes a reactor from here and puts it back; deque methods are atomic.
        self._free: deque[Reactor] = deque()

    def service(
        self,
        on_outcome: Callable[[K, CheckOutcome], object],
        *,
        on_slow: Callable[[K, float], object] | None = None,
        party_of: Callable[[K], Party] | None = None,
        admit: Callable[[K], CheckOutcome | None] | None = None,
    ) -> Loop[K]:
        """Return a loop for checks that are submitted one by one, from any thread.

        `on_outcome(key, outcome)` is called in the loop's thread once per check, as each ends, and must be quick: the
        others wait for it. Whatever a target or a spec does becomes an outcome. `on_slow` is called with the key and
        the seconds of CPU of a check whose response took long to judge. `party_of` returns whose check it is: those
        that wait for seconds of an address take turns by it. `admit` is called before a check starts, in the loop's
        thread, and may return its outcome instead.
        """
        return Loop(
            Reactor(),
            self._network,
            self._protocols,
            on_outcome=on_outcome,
            on_slow=on_slow,
            party_of=party_of,
            admit=admit,
        )

    def run(self, specs: Iterable[tuple[K, CheckSpec] | None], on_outcome: Callable[[K, CheckOutcome], object]) -> None:
        """Run all checks at once and return when the last has its outcome. `on_outcome` as in `service`.

        A None among `specs` delays those after it. What `specs` or `on_outcome` raise is passed on, and the checks in
        progress are dropped.
        """
        try:
            reactor = self._free.pop()
        except IndexError:
            reactor = Reactor()
        try:
            Loop(reactor, self._network, self._protocols, on_outcome=on_outcome).run(specs)
        finally:
            self._free.append(reactor)

    def check(self, spec: CheckSpec) -> CheckOutcome:
        """Run one check."""
        outcomes: list[CheckOutcome] = []
        self.run([(None, spec)], lambda _, outcome: outcomes.append(outcome))
        return outcomes[0]
