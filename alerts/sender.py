"""The threads of a worker that send messages and tests. Celery's own threads never wait for a receiver.

No account takes all of them: of its messages few are sent at once (`sending.claim`), and so are its tests.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import cache

from celery.signals import worker_shutdown
from django.conf import settings
from django.db import DatabaseError

from alerts import messages, metrics, sending
from alerts.events import Payload
from alerts.models import AlertChannel
from alerts.transports import KINDS
from core.clock import utc_now
from core.db import release_connection
from notifications.outbox import SendResult

logger = logging.getLogger(__name__)

THREADS = 16
ANY_THREADS = 8
"""Of those, how many serve any channel; the others only those whose last try did not fail."""
TESTS = 16
TESTS_OF_OWNER = 3
STOP_SEC = 2.5

_claiming = threading.Lock()
"""Two claims at once would not see each other's messages, and pass the bound of their account."""


class Sender:
    """Threads that live as long as there is something to send. One per process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._stopping = False

    def wake(self, due: int) -> None:
        """Start a thread for each message that is due, as far as threads are idle. The busy ones may hang for long."""
        with self._changed:
            idle = [] if self._stopping else [n for n in range(THREADS) if n not in self._running]
            started = idle[:due]
            self._running.update(started)
        for number in started:
            threading.Thread(target=self._work, args=(number,), name=f"sender-{number}", daemon=True).start()

    def stop(self, *, grace_sec: float) -> None:
        """Begin nothing more, and wait so long for what is under way; its leases end by themselves."""
        with self._changed:
            self._stopping = True
            self._changed.wait_for(lambda: not self._running, timeout=grace_sec)

    def _work(self, number: int) -> None:
        try:
            while not self._stopping and send_next(healthy_only=number >= ANY_THREADS):
                pass
        except DatabaseError as error:
            logger.warning("alerts wait for the database: %s", error)
        finally:
            release_connection()
            with self._changed:
                self._running.discard(number)
                self._changed.notify_all()


def send_next(*, healthy_only: bool = False) -> bool:
    """Send the next message that is due; whether there was one."""
    with _claiming:
        claimed = sending.claim(utc_now(), healthy_only=healthy_only)
    if claimed is None:
        return False
    channel, items = sending.load(claimed)
    release_connection()
    if channel is None:
        outcome = SendResult(delivered=False, detail="The channel is switched off.", retry=False)
    else:
        outcome = _try(channel, items, claimed.key)
    state = sending.finish(
        claimed, delivered=outcome.delivered, detail=outcome.detail, retry=outcome.retry, now=utc_now()
    )
    metrics.DELIVERIES.add(1, "overtaken" if state is None else state.value)
    return True


def _try(channel: AlertChannel, items: Sequence[Payload], key: str) -> SendResult:
    now = utc_now()
    try:
        message = messages.render(items, key=key, base_url=settings.BASE_URL, now=now)
        return KINDS[channel.kind].send(channel.config, message, key=key, now=now)
    except Exception:
        # A fault of ours must cost this message only, and only as long as any that fails; the next are to be sent.
        logger.exception("the alert %s could not be sent", key)
        return SendResult(delivered=False, detail="Something broke on our side; it has been logged.")


class FairThreads:
    """Does work of many owners in threads of its own, a bounded number at once, and fewer of each owner.

    What is more waits, and owners take turns. `submit` never waits.
    """

    def __init__(self, name: str, *, threads: int, most_of_owner: int) -> None:
        self._name = name
        self._threads = threads
        self._most_of_owner = most_of_owner
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()
        self._busy: Counter[Hashable] = Counter()

    def submit(self, owner: Hashable, work: Callable[[], object]) -> None:
        """Do it as soon as a thread is free for this owner."""
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
        """Take work of the owner whose turn is first and who may have more. Called with the lock."""
        for owner, works in self._waiting.items():
            if self._busy[owner] < self._most_of_owner:
                work = works.popleft()
                del self._waiting[owner]
                if works:
                    self._waiting[owner] = works  # last again
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


@cache
def sender() -> Sender:
    return Sender()


@cache
def tests() -> FairThreads:
    return FairThreads("channel-test", threads=TESTS, most_of_owner=TESTS_OF_OWNER)


@worker_shutdown.connect
def leave(**_: object) -> None:
    sender().stop(grace_sec=STOP_SEC)
