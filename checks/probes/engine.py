"""The probe engine: checks in, outcomes out. Safe to use from several threads, each with a run of its own."""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from checks.probes.batch import Batch
from checks.probes.reactor import Reactor
from checks.probes.resolver import Resolver
from checks.probes.transfer import Transfer
from checks.probes.trust import find_trust_store
from checks.spec import CheckOutcome, CheckSpec
from core.egress import EgressGuard

K = TypeVar("K")

_MAX_IN_FLIGHT = 256  # bounds descriptors, and with 1 MiB of body each the memory of one run


def _product_version() -> str:
    try:
        return version("pulsekeeper")
    except PackageNotFoundError:  # run from a checkout, as `make up` does
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text())["project"]["version"])


class ProbeEngine:
    """Runs checks on libcurl. Make one per process: it keeps idle handles, trust store and names for reuse."""

    def __init__(
        self, guard: EgressGuard, ca_file: str | None = None, *, resolver: Resolver | None = None
    ) -> None:
        """`ca_file` holds the authorities to trust in PEM form; None takes the system's."""

        @lru_cache(maxsize=65_536)
        def permits(address: str) -> bool:
            return guard.permits(ip_address(address))

        self._new_transfer = partial(
            Transfer, permits=permits, ca_file=ca_file or find_trust_store(), version=_product_version()
        )
        self._resolver = resolver or Resolver()
        # A run takes a reactor with its transfers from here and puts it back; deque methods are atomic.
        self._free: deque[tuple[Reactor, list[Transfer]]] = deque()

    def run(
        self,
        specs: Iterable[tuple[K, CheckSpec]],
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
        batch = Batch(
            reactor, idle, new_transfer=self._new_transfer, resolver=self._resolver, on_outcome=on_outcome
        )
        try:
            batch.run(specs, max_in_flight=max_in_flight)
        finally:
            self._free.append((reactor, idle))

    def check(self, spec: CheckSpec) -> CheckOutcome:
        """Run one check."""
        outcomes: list[CheckOutcome] = []
        self.run([(None, spec)], lambda _, outcome: outcomes.append(outcome))
        return outcomes[0]
