"""Limit the requests that wait for a worker, a provider or a mail server.

Each occupies a thread of the web process for seconds, so all accounts get only part of the threads
(`config.gateway`), and an account few of these places. When all are taken, accounts without a place queue for one,
those first that had places for the shortest time lately, and a request that has waited for TENURE_SEC gives its place
up. Each web process counts its own, so a crash leaves nothing behind.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from core import metrics
from core.db import release_connection
from core.errors import NoWorker, TooManyRequests
from core.shares import RecentUse
from core.turns import paused, take_time

MAX_IN_PROCESS = 64
"""Requests of all accounts in a web process. The gateway has more threads."""
MAX_PRESENT = MAX_IN_PROCESS // 4
"""Requests of one account that run, or wait until they may."""
MAX_STRANGERS = MAX_IN_PROCESS // 4
"""Requests without an account, of all client addresses together."""
MAX_ACTIVE = 8
"""Requests of one account that run at the same time."""
RESERVED = 8
"""The last places, for accounts that have none."""
MAX_QUEUED = 16
"""Requests of accounts without a place that wait for one."""
PATIENCE_SEC = 2.0
TENURE_SEC = 5.0
"""How long a request keeps its place while others queue for one."""
RETRY_SEC = 5.0
_LOOK_SEC = 0.1

WAITING_REQUESTS = metrics.Level(
    "pulsekeeper_waiting_requests",
    "Requests that wait for a worker, a provider or a mail server, at most 64 a process.",
)
WAITING_REFUSED = metrics.Counter(
    "pulsekeeper_waiting_refused_total",
    "Requests that got no place to wait: `share` (the account has its share), `full`, `taken` (it gave its place up).",
    ("reason",),
    [("share",), ("full",), ("taken",)],
)


@dataclass(eq=False, slots=True)
class _Place:
    account: str
    stranger: bool
    since: float = 0.0
    interrupt: Callable[[], object] | None = None
    taken: bool = False


@dataclass(eq=False, slots=True)
class _Ticket:
    account: str
    stranger: bool
    used: float  # seconds of places lately
    number: int = field(default_factory=itertools.count().__next__)
    rejected: bool = False

    @property
    def turn(self) -> tuple[float, int]:
        return self.used, self.number


_changed = threading.Condition()
_active: Counter[str] = Counter()
_present: Counter[str] = Counter()
_places: list[_Place] = []
_queue: list[_Ticket] = []
_used = RecentUse()
_current: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextmanager
def limit_waiting(account: str, *, most: int = MAX_ACTIVE, kind: str = "", stranger: bool = False) -> Iterator[None]:
    """Run the block while less than `most` requests of the account and `kind` run theirs.

    `stranger`: the account is a client address. A burst waits up to PATIENCE_SEC for its turn. Raises TooManyRequests,
    also in place of NoWorker if the request gave its place up.
    """
    WAITING_REQUESTS.follow(lambda: len(_places))
    take_time()
    place, key = _take_place(account, stranger=stranger), f"{kind} {account}"
    token = _current.set(place)
    try:
        _await_activity(key, most)
        try:
            yield
        except NoWorker:
            if place.taken:
                raise _refused("taken") from None
            raise
        finally:
            with _changed:
                _decrease(_active, key)
    finally:
        with _changed:
            _decrease(_present, account)
            _places.remove(place)
            _used.add(account, time.monotonic() - place.since)
            _changed.notify_all()
        _current.reset(token)


@contextmanager
def interruptible(interrupt: Callable[[], object]) -> Iterator[None]:
    """Let another request end the wait in this block by `interrupt`, and take its place."""
    place = _current.get()
    if place is not None:
        place.interrupt = interrupt
    try:
        yield
    finally:
        if place is not None:
            place.interrupt = None


def _await_activity(key: str, most: int) -> None:
    with _changed:
        if _active[key] < most:
            _active[key] += 1
            return
    release_connection()
    with paused(), _changed:
        if not _changed.wait_for(lambda: _active[key] < most, PATIENCE_SEC):
            raise _refused("share")
        _active[key] += 1


def _take_place(account: str, *, stranger: bool) -> _Place:
    with _changed:
        own, free = _present[account], MAX_IN_PROCESS - len(_places)
        if own >= MAX_PRESENT or (own and free <= RESERVED):
            raise _refused("share")
        if not _queue and _has_room(stranger=stranger):
            return _enter(account, stranger=stranger)
        if own:
            raise _refused("full")
        ticket = _Ticket(account, stranger, _used.of(account, time.monotonic()))
        _join(ticket)
    try:
        release_connection()
        with paused():
            return _await_place(ticket)
    finally:
        with _changed:
            if ticket in _queue:
                _queue.remove(ticket)
            _changed.notify_all()


def _join(ticket: _Ticket) -> None:
    """Queue, in place of one that had places for longer if the queue is full. An account queues once."""
    if any(other.account == ticket.account for other in _queue):
        raise _refused("full")
    if len(_queue) >= MAX_QUEUED:
        last = max(_queue, key=lambda other: other.turn)
        if last.turn < ticket.turn:
            raise _refused("full")
        last.rejected = True
        _queue.remove(last)
        _changed.notify_all()
    _queue.append(ticket)


def _await_place(ticket: _Ticket) -> _Place:
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        interrupt = None
        with _changed:
            eligible = [other for other in _queue if _has_room(stranger=other.stranger)]
            if eligible and min(eligible, key=lambda other: other.turn) is ticket:
                _queue.remove(ticket)
                return _enter(ticket.account, stranger=ticket.stranger)
            remaining = deadline - time.monotonic()
            if ticket.rejected or remaining <= 0:
                raise _refused("full")
            if (victim := _victim()) is not None:
                victim.taken, interrupt = True, victim.interrupt
            else:
                _changed.wait(min(remaining, _LOOK_SEC))
        if interrupt is not None:
            interrupt()


def _has_room(*, stranger: bool) -> bool:
    if stranger and sum(place.stranger for place in _places) >= MAX_STRANGERS:
        return False
    return len(_places) < MAX_IN_PROCESS


def _enter(account: str, *, stranger: bool) -> _Place:
    place = _Place(account, stranger, time.monotonic())
    _places.append(place)
    _present[account] += 1
    return place


def _victim() -> _Place | None:
    """Return a place to take: of the account with the most places, the oldest. None if enough are being vacated."""
    vacated = sum(place.taken for place in _places) + MAX_IN_PROCESS - len(_places)
    if vacated >= len(_queue):
        return None
    until = time.monotonic() - TENURE_SEC
    old = [place for place in _places if place.interrupt is not None and not place.taken and place.since <= until]
    return min(old, key=lambda place: (-_present[place.account], place.since), default=None)


def _decrease(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
    _changed.notify_all()


def _refused(reason: str) -> TooManyRequests:
    WAITING_REFUSED.add(1, reason)
    return TooManyRequests(wait=RETRY_SEC)
