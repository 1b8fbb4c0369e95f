"""The only place that reads the clock. Read it once per action and pass `now` on.

Web processes and workers follow `DATABASE`, PostgreSQL's clock: times that they store and compare are right while that
of their machine is wrong, or is set. The monotonic clock counts from each of its answers. Messages and reports in the
broker have times of `BROKER`, also from beat, which uses no database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MS = 253_402_300_799_999  # the end of the year 9999, Python's last
LEARNED_EVERY_SEC = 1.0


class ServerClock:
    """The clock of a server, as this process knows it. That of the machine in a process that does not follow it.

    Used from any thread: a lost race costs one correction.
    """

    def __init__(self) -> None:
        self._ask: Callable[[], object] | None = None
        self._offset: float | None = None
        """The server's epoch seconds, less those of the monotonic clock."""
        self._learned_at = 0.0

    def follow(self, ask: Callable[[], object]) -> None:
        """Go by this clock from now on. `ask` makes the server answer (`learn`), or raises."""
        self._ask = ask

    def learn(self, seconds: float, *, asked_at: float) -> None:
        """Take the server's answer, in epoch seconds, to a question asked at this time of the monotonic clock.

        The server read its clock between question and answer. What is known is kept as far as this allows.
        """
        answered_at = time.monotonic()
        least, most = seconds - answered_at, seconds - asked_at
        self._offset = (least + most) / 2 if self._offset is None else min(max(self._offset, least), most)
        self._learned_at = answered_at

    @property
    def is_outdated(self) -> bool:
        """Return whether the server should be asked."""
        is_old = self._offset is None or time.monotonic() - self._learned_at > LEARNED_EVERY_SEC
        return self._ask is not None and is_old

    def time(self) -> float:
        """Return the time in epoch seconds. Ask the server if it has never answered; raises what `ask` does."""
        if self._offset is None and self._ask is not None:
            self._ask()
        return time.time() if self._offset is None else time.monotonic() + self._offset

    def machine_ahead(self) -> float | None:
        """Return by how many seconds the clock of this machine is ahead of the server's, or None if unknown."""
        return None if self._offset is None else time.time() - time.monotonic() - self._offset


DATABASE = ServerClock()
BROKER = ServerClock()


def utc_now() -> datetime:
    return datetime.fromtimestamp(DATABASE.time(), UTC)


def to_ms(moment: datetime) -> int:
    """Return epoch milliseconds, rounded down, as in all times of the API."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """Return the time of epoch milliseconds, 0 to MAX_MS."""
    return EPOCH + timedelta(milliseconds=ms)
