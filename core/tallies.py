"""Counting in the process what is to be counted in the broker, so that only few of many requests ask it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_NAMES = 20_000  # about 5 MB; beyond it all start anew, which forgets what was not told yet

Counted = tuple[int, float]  # how many everybody counted in the window, and the seconds until it ends


@dataclass(slots=True)
class _Count:
    ends_at: float  # monotonic
    own: int = 0  # counted here, and not told yet
    total: int = 0  # of everybody, as of the last time that we told ours


class Tally:
    """Counts of names in windows. Each process tells the others of a share of requests at a time.

    So with n processes the count of a window may be wrong by n shares: too low by what is not told yet, too high by
    what the first share brings along from before the window began. A share of one asks every time. A name that stays
    below its share, as nearly all do, costs no question at all.
    """

    def __init__(self, tell: Callable[[str, int, int], Counted]) -> None:
        """`tell(name, count, seconds)` adds to what all share, in a window that it opens where none is."""
        self._tell = tell
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def hit(self, name: str, *, seconds: int, share: int) -> Counted:
        """Count one more: how many are known of in this window, and the seconds until it ends.

        Raises what `tell` does.
        """
        now = time.monotonic()
        with self._lock:
            count = self._counts.get(name)
            if count is None or count.ends_at <= now:
                if len(self._counts) >= MOST_NAMES:
                    self._counts.clear()
                count = self._counts[name] = _Count(now + seconds)
            count.own += 1
            known = (count.total + count.own, count.ends_at - now)
            if count.own < share:
                return known
            told, count.own = count.own, 0
        total, remaining = self._tell(name, told, seconds)
        with self._lock:
            count.total, count.ends_at = total, time.monotonic() + remaining
        return total, remaining
