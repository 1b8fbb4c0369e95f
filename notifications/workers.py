"""The threads of a worker that send messages. Celery's own threads never wait for a receiver."""

from __future__ import annotations

import logging
import threading
from collections import Counter
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

    Other work waits, and the owner with the fewest running threads is next. `submit` never waits.
    """

    def __init__(self, name: str, *, threads: int, most_of_owner: int) -> None:
        self._name, self._threads, self._most_of_owner = name, threads, most_of_owner
        self._lock = threading.Lock()
        self._waiting: list[tuple[Hashable, Callable[[], object]]] = []
        self._busy: Counter[Hashable] = Counter()

    def submit(self, owner: Hashable, work: Callable[[], object]) -> None:
        """Run it as soon as a thread is free for this owner."""
        with self._lock:
            self._waiting.append((owner, work))
        self._start()

    def _start(self) -> None:
        with self._lock:
            while self._waiting and self._busy.total() < self._threads:
                job = min(self._waiting, key=lambda waiting: self._busy[waiting[0]])
                if self._busy[job[0]] >= self._most_of_owner:
                    return
                self._waiting.remove(job)
                self._busy[job[0]] += 1
                threading.Thread(target=self._run, args=job, name=self._name, daemon=True).start()

    def _run(self, owner: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            release_connection()
            with self._lock:
                self._busy[owner] -= 1
                self._busy += Counter()  # drops the owners that are idle
            self._start()
