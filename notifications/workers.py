"""Threads of a worker that are shared fairly by many owners."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable

from core.db import release_connection


class FairThreads:
    """Threads that run work of many owners: a limited number at once, and fewer per owner.

    Other work waits, and owners take turns. `submit` never waits.
    """

    def __init__(self, name: str, *, threads: int, most_of_owner: int) -> None:
        self._name, self._threads, self._most_of_owner = name, threads, most_of_owner
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()
        self._busy: Counter[Hashable] = Counter()

    def submit(self, owner: Hashable, work: Callable[[], object]) -> None:
        """Run it as soon as a thread is free for this owner."""
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(work)
        self._start()

    def _start(self) -> None:
        with self._lock:
            while self._busy.total() < self._threads and (taken := self._next()) is not None:
                owner, work = taken
                self._busy[owner] += 1
                threading.Thread(target=self._run, args=(owner, work), name=self._name, daemon=True).start()

    def _next(self) -> tuple[Hashable, Callable[[], object]] | None:
        """Take work of the first waiting owner below its limit. The lock is held."""
        for owner, works in self._waiting.items():
            if self._busy[owner] < self._most_of_owner:
                work = works.popleft()
                del self._waiting[owner]
                if works:
                    self._waiting[owner] = works  # to the end of the queue
                return owner, work
        return None

    def _run(self, owner: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            release_connection()
            with self._lock:
                self._busy -= Counter([owner])  # drops owners without work
            self._start()
