"""At most one datagram per target address and second, for protocols that send without the target's consent.

Users may enter addresses of others, and UDP has no handshake: without a limit, many monitors of one address would be an
attack on it. Owners take turns at the seconds of an address, so that many monitors of one account do not block another
account's monitor of the same address.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from core.egress import embedded_v4

logger = logging.getLogger(__name__)

SECOND = 1.0
PATIENCE = 4 * SECOND
"""How long a check waits in its loop. One whose turn is later gives up its place and comes back."""
AWAY_SECONDS = (5.0, 30.0)
"""When a check comes back that could not ask for its turn, as the broker is away: at random, so that not all do."""
_MOST_REMEMBERED = 10_000
_AT_ONCE = 500


class Ask(NamedTuple):
    """A request for a second of an address (its `identity`), to send one datagram.

    `owner` is the account that the check counts for, and `ticket` its place in the queue: checks of a monitor have the
    same. `repeats`: the check has begun and sends again, so it goes first. `returns`: if it has to give up, it keeps
    its place and asks again later.
    """

    address: str
    owner: str = ""
    ticket: str = ""
    repeats: bool = False
    returns: bool = False


Claim = Callable[[Sequence[Ask], Sequence[Ask]], Sequence[float | None]]
"""Claims the current second of each address of the first, and takes the second out of the queue.

Returns 0.0 for a claimed one, else when to ask again, in seconds, or None if that is not known.
"""


class Turn(NamedTuple):
    """The end of the second that a check got, by the monotonic clock, or None and when to come back, in seconds."""

    ends: float | None
    comes_in: float = 0.0


class Ending(Protocol):
    ended: bool


@dataclass(slots=True, eq=False)
class Waiting:
    """A check that waits, at the longest `until`, by the monotonic clock.

    `take` is called in another thread, and must be quick and not raise; it is not called if the check has ended.
    """

    ask: Ask
    until: float
    check: Ending
    take: Callable[[Turn], object]
    asked: bool = False
    left: bool = False


class LocalSeconds:
    """Claims for a single process, without a broker: first come, first served."""

    def __init__(self, seconds: float = SECOND) -> None:
        self._seconds = seconds
        self._free_at: dict[str, float] = {}
        self._queues: dict[str, list[str]] = {}

    def __call__(self, asks: Sequence[Ask], gone: Sequence[Ask]) -> list[float | None]:
        now = time.monotonic()
        if len(self._free_at) > _MOST_REMEMBERED:
            self._free_at = {address: free_at for address, free_at in self._free_at.items() if free_at > now}
        for ask in gone:
            self._leave(ask)
        return [self._claim(ask, now) for ask in asks]

    def _claim(self, ask: Ask, now: float) -> float:
        if ask.address not in self._queues and self._free_at.get(ask.address, now) <= now:
            self._free_at[ask.address] = now + self._seconds
            return 0.0
        queue = self._queues.setdefault(ask.address, [])
        if ask.ticket not in queue:
            queue.insert(0 if ask.repeats else len(queue), ask.ticket)
        ahead = queue.index(ask.ticket)
        free_at = self._free_at.get(ask.address, now)
        if ahead or free_at > now:
            return max(0.0, free_at - now) + ahead * self._seconds
        self._free_at[ask.address] = now + self._seconds
        self._leave(ask)
        return 0.0

    def _leave(self, ask: Ask) -> None:
        queue = self._queues.get(ask.address, [])
        if ask.ticket in queue:
            queue.remove(ask.ticket)
        if not queue:
            self._queues.pop(ask.address, None)


class RateLimiter:
    """Lets checks wait for seconds of their addresses. Thread-safe.

    A separate thread calls `claim`, which may ask a broker, for many checks at once.
    """

    def __init__(self, claim: Claim | None = None) -> None:
        self._claim = claim or LocalSeconds()
        self._arrived: SimpleQueue[Waiting] = SimpleQueue()
        # Only the thread uses these: the checks that wait, and when each is to ask.
        self._due: list[tuple[float, int, Waiting]] = []
        self._number = itertools.count()
        threading.Thread(target=self._run, name="probe-rate-limit", daemon=True).start()

    def reserve(self, waiting: Waiting) -> None:
        self._arrived.put(waiting)

    def _run(self) -> None:
        while True:
            ready = self._take_arrivals()
            now = time.monotonic()
            while self._due and self._due[0][0] <= now and len(ready) < _AT_ONCE:
                ready.append(heapq.heappop(self._due)[2])
            if ready:
                self._ask(ready)

    def _take_arrivals(self) -> list[Waiting]:
        """Wait for the next check, or until one is to ask. Return the new ones."""
        arrived: list[Waiting] = []
        timeout = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        try:
            arrived.append(self._arrived.get(timeout=timeout))
            while len(arrived) < _AT_ONCE:
                arrived.append(self._arrived.get_nowait())
        except Empty:
            pass
        return arrived

    def _push(self, waiting: Waiting, *, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._number), waiting))

    def _ask(self, ready: Sequence[Waiting]) -> None:
        began = time.monotonic()
        over = [each for each in ready if each.check.ended or each.left]
        asking = [each for each in ready if each not in over] if over else ready
        # The second begins when it is claimed, which is after this: it is free for others no sooner than at `ends`.
        ends = began + SECOND
        try:
            waits = self._claim([each.ask for each in asking], [each.ask for each in over if each.asked])
        except Exception:
            logger.exception("Seconds could not be claimed; checks wait for them.")
            waits = [None] * len(asking)
        now = time.monotonic()
        for each, wait in zip(asking, waits, strict=True):
            each.asked = True
            at = now + (SECOND / 4 if wait is None else max(wait, 0.001))
            if wait == 0:
                each.take(Turn(ends))
            elif at <= each.until:
                self._push(each, at=at)
            else:
                self._give_up(each, random.uniform(*AWAY_SECONDS) if wait is None else wait)  # noqa: S311

    def _give_up(self, waiting: Waiting, seconds: float) -> None:
        if not waiting.ask.returns:
            waiting.left = True
            self._push(waiting, at=0.0)  # it leaves the queue with the next claim
        waiting.take(Turn(None, seconds))


@lru_cache(maxsize=65_536)
def identity(address: str) -> str:
    """Return one spelling for an address and its IPv6 forms, which lead to the same machine."""
    parsed = ip_address(address)
    return str((isinstance(parsed, IPv6Address) and embedded_v4(parsed)) or parsed)
