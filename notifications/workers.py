"""The threads of a worker that send messages. Celery's own threads never wait for a receiver."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any

from celery.signals import worker_shutdown
from django.db import DatabaseError

from core.db import release_connection
from notifications.outbox import Outbox

logger = logging.getLogger(__name__)

STOP_SEC = 2.5


class Senders:
    """The threads of an outbox. They run while there is something to send.

    All but `any_threads` of them only send to receivers whose last attempt did not fail.
    """

    def __init__(self, outbox: Outbox[Any], *, threads: int, any_threads: int) -> None:
        self._outbox, self._threads, self._any_threads = outbox, threads, any_threads
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._stopping = False
        worker_shutdown.connect(self._shut_down)

    def wake(self, now: datetime) -> None:
        """Start a thread for each due message, as far as threads are idle. Busy ones may hang for long."""
        due = self._outbox.due(now, most=self._threads)
        with self._changed:
            idle = [] if self._stopping else [n for n in range(self._threads) if n not in self._running]
            started = idle[:due]
            self._running.update(started)
        for number in started:
            threading.Thread(target=self._work, args=(number,), name=f"sender-{number}", daemon=True).start()

    def stop(self, *, grace_sec: float) -> None:
        """Send nothing more, and wait up to `grace_sec` for running attempts. Leases of others expire."""
        with self._changed:
            self._stopping = True
            self._changed.wait_for(lambda: not self._running, timeout=grace_sec)

    def _shut_down(self, **_: object) -> None:
        self.stop(grace_sec=STOP_SEC)

    def _work(self, number: int) -> None:
        try:
            healthy_only = number >= self._any_threads
            self._outbox.send_due(healthy_only=healthy_only, stopped=lambda: self._stopping)
        except DatabaseError as error:
            logger.warning("messages wait for the database: %s", error)
        finally:
            release_connection()
            with self._changed:
                self._running.discard(number)
                self._changed.notify_all()


class FairThreads:
    """Threads that run work of many owners: a limited number at once, and fewer per owner.

    Other work waits, and owners take turns. `submit` never waits.
    """

    def __init__(self, name: str, *, threads: int, most_of_owner: int) -> None:
        self._name = name
        self._threads = threads
        self._most_of_owner = most_of_owner
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
                self._busy[owner] -= 1
                if not self._busy[owner]:
                    del self._busy[owner]
            self._start()
