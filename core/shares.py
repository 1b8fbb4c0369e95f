"""Share a scarce resource of this process, such as its processors, between client addresses and accounts.

A user that had little of it lately goes first, so the requests of one client delay others by no more than those that
run. Each web process counts its own, so a crash leaves nothing behind.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from core.errors import TooManyRequests
from core.turns import paused

HALF_LIFE_SEC = 30.0
"""After this time, past use counts half."""
PRESENT_SEC = 0.5
"""How much use a running or waiting request counts as. With zero, many concurrent requests of one client would precede
clients that used little; with much more, a client with several requests would wait forever behind those with few."""
FORGOTTEN_SEC = 0.001
"""Past use below this counts as none."""
CLEAN_ABOVE = 1_000


class RecentUse:
    """Seconds that users had something lately. Those of HALF_LIFE_SEC ago count half."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """Seconds by user, as of a time of the monotonic clock."""
        self._clean_above = CLEAN_ABOVE

    def of(self, user: str, now: float) -> float:
        seconds, at = self._used.get(user, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / HALF_LIFE_SEC))

    def add(self, user: str, seconds: float) -> None:
        now = time.monotonic()
        self._used[user] = (self.of(user, now) + seconds, now)
        if len(self._used) > self._clean_above:
            self._used = {user: kept for user, kept in self._used.items() if self.of(user, now) > FORGOTTEN_SEC}
            self._clean_above = 2 * len(self._used) + CLEAN_ABOVE


@dataclass(eq=False, slots=True)
class _Ticket:
    users: tuple[str, ...]
    refused: bool = False


class Shares:
    """A resource that `at_once` requests may use, while `most_waiting` others wait up to `patience_sec` for it.

    The last of several places is for those who have no other request here. A client has at most `most_present`
    requests that use it or wait.
    """

    def __init__(self, *, at_once: int, most_waiting: int, most_present: int, patience_sec: float) -> None:
        self._at_once, self._most_waiting, self._most_present = at_once, most_waiting, most_present
        self._patience_sec = patience_sec
        self._changed = threading.Condition()
        self._running = 0
        self._waiting: list[_Ticket] = []
        self._present: Counter[str] = Counter()
        self._used = RecentUse()

    @contextmanager
    def turn(self, *users: str) -> Iterator[None]:
        """Run the block in turn. Raises TooManyRequests. The first of `users` is the client, another an account.

        If too many wait, those are refused whose client or account has most requests here, or else used most.
        """
        ticket = _Ticket(users)
        with self._changed:
            if any(self._present[user] >= self._most_present for user in users[:1]):
                raise TooManyRequests(wait=self._patience_sec)
            self._present.update(users)
        began = None
        try:
            self._wait(ticket)
            began = time.monotonic()
            yield
        finally:
            with self._changed:
                if began is not None:
                    self._running -= 1
                    for user in users:
                        self._used.add(user, time.monotonic() - began)
                self._present.subtract(users)
                self._present += Counter()  # without those at 0
                self._changed.notify_all()

    def _wait(self, ticket: _Ticket) -> None:
        with self._changed:
            self._waiting.append(ticket)
            waiting = [one for one in reversed(self._waiting) if not one.refused]
            if len(waiting) > self._most_waiting + self._at_once - self._running:
                max(waiting, key=self._rank).refused = True
                self._changed.notify_all()
            waits = not self._may_go(ticket)
        try:
            with paused() if waits else nullcontext(), self._changed:
                if not self._changed.wait_for(lambda: self._may_go(ticket), self._patience_sec) or ticket.refused:
                    raise TooManyRequests(wait=self._patience_sec)
                self._running += 1
        finally:
            with self._changed:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _may_go(self, ticket: _Ticket) -> bool:
        """Return whether the wait is over: the ticket is refused, or it is its turn."""
        if ticket.refused:
            return True
        free = self._at_once - self._running
        if free <= 0 or min((one for one in self._waiting if not one.refused), key=self._rank) is not ticket:
            return False
        return free > 1 or self._at_once == 1 or all(self._present[user] == 1 for user in ticket.users)

    def _rank(self, ticket: _Ticket) -> float:
        """Return for how long its users' requests ran lately, and may run that are present: the least goes first."""
        now = time.monotonic()
        return sum(self._used.of(user, now) + self._present[user] * PRESENT_SEC for user in ticket.users)
