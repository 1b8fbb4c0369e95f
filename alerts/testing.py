"""Tests of channels while a caller waits: one attempt by a worker, past the outbox, but logged.

They never start in the web process, whose address no customer has allowed, as in `monitors.checking.interactive`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable

import msgspec
from django.conf import settings
from django.db import transaction

from alerts import messages
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.transports import KINDS
from core import replies
from core.clock import to_ms, utc_now
from core.db import release_connection
from core.errors import NotConfirmed, NoWorker
from core.ids import delivery_id
from notifications.outbox import SendResult

PATIENCE_SEC = 25.0
TESTS_OF_OWNER = 3


class FairThreads:
    """Threads that run work of many owners: a limited number at once, and fewer per owner.

    Other work waits, and owners take turns. `submit` never waits.
    """

    def __init__(self, name: str, *, threads: int, most_of_owner: int) -> None:
        self._name, self._threads, self._most_of_owner = name, threads, most_of_owner
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Callable[[], object]]] = {}
        self._busy: Counter[Hashable] = Counter()

    def submit(self, owner: Hashable, work: Callable[[], object]) -> None:
        """Run it as soon as a thread is free for this owner."""
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(work)
            self._start()

    def _start(self) -> None:
        """Start work of the first waiting owners below their limit. The lock is held."""
        while self._busy.total() < self._threads:
            owners = [owner for owner in self._waiting if self._busy[owner] < self._most_of_owner]
            if not owners:
                return
            owner, works = owners[0], self._waiting.pop(owners[0])
            work = works.popleft()
            if works:
                self._waiting[owner] = works  # to the end of the queue
            self._busy[owner] += 1
            threading.Thread(target=self._run, args=(owner, work), name=self._name, daemon=True).start()

    def _run(self, owner: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            release_connection()
            with self._lock:
                self._busy -= Counter([owner])  # drops owners without work
                self._start()


_threads = FairThreads("channel-test", threads=16, most_of_owner=TESTS_OF_OWNER)


def send_test(channel: AlertChannel) -> SendResult:
    """Return the result of the test. Raise NotConfirmed, or NoWorker after PATIENCE_SEC."""
    if channel.confirmed_at is None:
        raise NotConfirmed
    answer = replies.ask("alerts.tasks.send_test", [channel.pk], SendResult, queue="alerts", patience_sec=PATIENCE_SEC)
    if answer is None:
        raise NoWorker("No worker sent the test in time; try again in a moment.")
    return answer


def submit_test(channel_id: int, reply_to: str) -> None:
    """Run a test in a thread, and post its result. Skip it if it had to wait until the caller gave up."""
    owner = AlertChannel.objects.filter(pk=channel_id).values_list("owner_id", flat=True).first()
    given_up = time.monotonic() + PATIENCE_SEC

    def work() -> None:
        if time.monotonic() < given_up:
            replies.post(reply_to, run_test(channel_id))

    _threads.submit(owner, work)


def run_test(channel_id: int) -> SendResult:
    """Send a test, and log it if the channel still exists."""
    channel = AlertChannel.objects.filter(pk=channel_id, confirmed_at__isnull=False).first()
    if channel is None:
        return SendResult(delivered=False, detail="The channel was deleted, or may no longer be used.")
    kind, config = KINDS[channel.kind], channel.config
    now, key = utc_now(), delivery_id()
    payload = Payload(EventType.TEST, at=to_ms(now))
    message = messages.render([payload], key=key, base_url=settings.BASE_URL, now=now)
    release_connection()
    result = kind.send(config, message, key=key, now=now)
    done_at = utc_now()
    with transaction.atomic():
        if AlertChannel.objects.select_for_update(no_key=True).filter(pk=channel_id).exists():
            delivery = Delivery.objects.create(
                public_id=key,
                channel_id=channel_id,
                account=channel.owner_id,
                created_at=done_at,
                state=Delivery.State.SENT if result.delivered else Delivery.State.FAILED,
                next_try_at=done_at,
                give_up_at=done_at,
                attempts=1,
                last_error=None if result.delivered else result.detail,
                done_at=done_at,
            )
            DeliveryItem.objects.create(
                delivery=delivery,
                channel_id=channel_id,
                source=f"test:{key}",
                payload=msgspec.to_builtins(payload),
                at=done_at,
            )
    return result
