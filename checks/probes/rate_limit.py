"""At most one check per target address and second, for protocols that send without the target's consent.

Anybody may enter anybody's address, and UDP has no handshake: without a limit, many monitors of one address would be
an attack on it.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from queue import Empty, SimpleQueue

from core.egress import embedded_v4

logger = logging.getLogger(__name__)

SECOND = 1.0
# After a granted second, a process lets the others ask first.
_YIELD_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = SECOND + _YIELD_SECONDS
_MOST_REMEMBERED = 10_000

Claim = Callable[[Sequence[str]], Sequence[float]]
"""Claims the current second of each address. Returns 0.0 for a claimed one, else when to ask again, in seconds."""

Then = Callable[[float], object]


class LocalSeconds:
    """Claims for a single process, without a broker."""

    def __init__(self, seconds: float = SECOND) -> None:
        self._seconds = seconds
        self._free_at: dict[str, float] = {}

    def __call__(self, addresses: Sequence[str]) -> list[float]:
        now = time.monotonic()
        if len(self._free_at) > _MOST_REMEMBERED:
            self._free_at = {address: free_at for address, free_at in self._free_at.items() if free_at > now}
        return [self._claim(address, now) for address in addresses]

    def _claim(self, address: str, now: float) -> float:
        free_at = self._free_at.get(address, now)
        if free_at > now:
            return free_at - now
        self._free_at[address] = now + self._seconds
        return 0.0


class RateLimiter:
    """Lets checks of one address wait for seconds of their own, first come, first served. Thread-safe.

    Not by the end of their patience: those with a short timeout would never let the others through.

    A thread of its own calls `claim`, which may ask a broker, for all addresses at once.
    """

    def __init__(self, claim: Claim | None = None) -> None:
        self._claim = claim or LocalSeconds()
        self._arrived: SimpleQueue[tuple[str, float, Then]] = SimpleQueue()
        # Only the thread uses these: the checks that wait for each address, and when to claim it.
        self._waiting: dict[str, deque[tuple[float, Then]]] = {}
        self._due: list[tuple[float, str]] = []
        threading.Thread(target=self._run, name="probe-rate-limit", daemon=True).start()

    def reserve(self, address: str, until: float, then: Then) -> None:
        """Wait for a second of the address, at the longest `until`, by the monotonic clock.

        `then` is called in another thread with the end of that second; never, if there is none in time. It must be
        quick and not raise.
        """
        self._arrived.put((_identity(address), until, then))

    def _run(self) -> None:
        while True:
            self._take_arrivals()
            if ready := self._take_due():
                self._grant(ready)

    def _take_arrivals(self) -> None:
        """Wait for the next check, or until an address is to be claimed."""
        timeout = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        try:
            address, until, then = self._arrived.get(timeout=timeout)
            while True:
                waiting = self._waiting.get(address)
                if waiting is None:
                    waiting = self._waiting[address] = deque()
                    heapq.heappush(self._due, (0.0, address))
                waiting.append((until, then))
                address, until, then = self._arrived.get_nowait()
        except Empty:
            pass

    def _take_due(self) -> list[str]:
        """Return the addresses to claim now, without those that no check waits for any more."""
        now = time.monotonic()
        ready: list[str] = []
        while self._due and self._due[0][0] <= now:
            _, address = heapq.heappop(self._due)
            waiting = self._waiting[address]
            while waiting and waiting[0][0] < now:
                waiting.popleft()
            if waiting:
                ready.append(address)
            else:
                del self._waiting[address]
        return ready

    def _grant(self, addresses: list[str]) -> None:
        # The second begins when it is claimed, which is after this: it is free for others no sooner than at `ends`.
        ends = time.monotonic() + SECOND
        try:
            waits = self._claim(addresses)
        except Exception:
            logger.exception("Seconds could not be claimed; checks wait for them.")
            waits = [SECOND] * len(addresses)
        now = time.monotonic()
        for address, wait in zip(addresses, waits, strict=True):
            waiting = self._waiting[address]
            if wait <= 0:
                waiting.popleft()[1](ends)
                wait = _LONGEST_WAIT_SECONDS
            if waiting:
                heapq.heappush(self._due, (now + min(wait, _LONGEST_WAIT_SECONDS), address))
            else:
                del self._waiting[address]


@lru_cache(maxsize=65_536)
def _identity(address: str) -> str:
    """Return one spelling for an address and its IPv6 forms, which lead to the same machine."""
    parsed = ip_address(address)
    return str((isinstance(parsed, IPv6Address) and embedded_v4(parsed)) or parsed)
