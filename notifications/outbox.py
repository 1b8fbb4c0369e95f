"""The one outbox: messages are rows that are claimed, sent, and marked afterwards.

A sender that dies leaves a lease. When it ends, the message is sent again with the same key: messages arrive at least
once, and receivers can drop repetitions. An app that sends messages subclasses `Notification` and `Outbox`.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from abc import ABC, abstractmethod
from collections import Counter as Counted
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from celery.signals import worker_shutdown
from django.db import DatabaseError, models, transaction
from django.db.models import Q

from core.bulk import BulkResult
from core.clock import utc_now
from core.db import release_connection
from core.metrics import Counter, Labels, Level
from core.text import shorten
from notifications.models import Notification

logger = logging.getLogger(__name__)

FIRST_RETRY = timedelta(seconds=10)
LONGEST_RETRY = timedelta(hours=1)
JITTER = 0.2
RETRY_FOR = timedelta(hours=24)
DETAIL_CHARS = 500
STOP_SEC = 2.5
FINISHING_AT_ONCE = 3
"""Threads of a lane that store a result. Each may wait for a lock with a connection, and the pool has few."""

State = Notification.State
OPEN = (State.GATHERING, State.WAITING)
OVERTAKEN = "overtaken"
OUTCOMES = (State.SENT.value, State.WAITING.value, State.DEAD.value, OVERTAKEN)
"""The outcomes of an attempt. An attempt is overtaken if another sender has claimed the message since."""
MAIL_FAILING = Level(
    "pulsekeeper_mail_server_failing", "Processes whose last mail the mail server refused, for any recipient."
)

M = TypeVar("M", bound=Notification)

DUE = """
    candidate.state IN ('gathering', 'waiting')
    AND candidate.next_try_at <= %(now)s
    AND (candidate.leased_until IS NULL OR candidate.leased_until <= %(now)s)
"""
_CLAIM = """
    WITH RECURSIVE {chosen}
    UPDATE {table} AS message
       SET state = 'waiting', leased_until = %(lease_end)s, attempts = message.attempts + 1
      FROM chosen
     WHERE message.id = chosen.id
    RETURNING message.*
"""


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of one attempt. `detail` is one line for a person, without secrets. `retry`: another may succeed."""

    delivered: bool
    detail: str
    retry: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shorten(" ".join(self.detail.split()), limit=DETAIL_CHARS))


def backoff(attempts: int) -> timedelta:
    """Return the wait after a number of failed attempts: doubled each time, with jitter."""
    wait = min(FIRST_RETRY * int(2 ** min(attempts - 1, 20)), LONGEST_RETRY)
    return wait * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - not a secret


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Threads of a process that claim under these limits, which are parameters of `Outbox.chosen`."""

    threads: int
    limits: dict[str, object] = field(default_factory=dict)


class Outbox(ABC, Generic[M]):
    """The messages of one app, and the threads of a worker that send them. Celery's threads never wait for a receiver.

    `chosen` is SQL: common table expressions. The last one, named `chosen`, selects and locks the ids to claim next by
    the app's rules of order and fairness. It gets `now`, `start`, a random number below 1, and the limits of the lane
    as parameters. `lease` exceeds the duration of any attempt. A wake-up sends at most `max_per_wake` messages per
    thread. The last lane can claim every message that another one can claim.
    """

    model: type[M]
    chosen: ClassVar[str]
    lease: ClassVar[timedelta]
    lanes: ClassVar[tuple[Lane, ...]] = (Lane(1),)
    max_per_wake: ClassVar[float] = math.inf
    level: ClassVar[Level | None] = None
    """Reports how many threads are busy."""
    counter: ClassVar[Counter]
    """Counts attempts by outcome (`OUTCOMES`), and by further `labels`."""

    def __init__(self) -> None:
        # Concurrent claims do not see each other's rows, and could exceed the limits. Each lane has its own lock: many
        # threads for slow receivers do not delay the few for prompt ones.
        self._claiming = {lane: threading.Lock() for lane in self.lanes}
        self._finishing = {lane: threading.Semaphore(FINISHING_AT_ONCE) for lane in self.lanes}
        self._changed = threading.Condition()
        self._running: Counted[Lane] = Counted()
        self._stopping = False
        worker_shutdown.connect(self.stop)

    def _rows(self) -> models.QuerySet[M]:
        return self.model._default_manager.all()

    @abstractmethod
    def attempt(self, claimed: Sequence[M]) -> Iterator[tuple[M, SendResult]]:
        """Send claimed messages, without a transaction. Yield each with its result."""

    def lock_receiver(self, message: M) -> bool:
        """Lock what is locked before a message is updated. Return False if the message is deleted with it."""
        return True

    def labels(self, message: M) -> Labels | None:
        """Return the values of the counter's labels after the outcome. Return None if the message was deleted."""
        return ()

    def finished(self, message: M, state: Notification.State, result: SendResult, now: datetime) -> None:
        """Record an attempt elsewhere, in the transaction that updates the message."""

    @property
    def in_flight(self) -> int:
        """Return how many threads of this process send, or look for a message to send."""
        return self._running.total()

    def claim(self, now: datetime, lane: Lane | None = None) -> list[M]:
        """Claim the messages to send next. The claim is committed on return."""
        lane = lane or self.lanes[-1]
        statement = _CLAIM.format(chosen=self.chosen, table=self.model._meta.db_table)
        start = random.random()  # noqa: S311 - not a secret
        parameters = {"now": now, "lease_end": now + self.lease, "start": start, **lane.limits}
        return list(self._rows().raw(statement, parameters))

    def send_next(self, lane: Lane | None = None, *, claimed: Callable[[], object] = lambda: None) -> int:
        """Claim and send the next messages. Return how many were attempted. Call `claimed` before they are sent."""
        lane = lane or self.lanes[-1]
        with self._claiming[lane]:
            now = utc_now()
            found = self.claim(now, lane) if self._is_due(now) else []
        if found:
            claimed()
        for message, result in self.attempt(found) if found else ():
            with self._finishing[lane]:
                state = self.finish(message, result, now=utc_now())
                labels = self.labels(message)
                release_connection()
            if labels is not None:
                self.counter.add(1, OVERTAKEN if state is None else state.value, *labels)
        return len(found)

    def send_due(self, lane: Lane | None = None, *, claimed: Callable[[], object] = lambda: None) -> int:
        """Send what is due, up to `max_per_wake`. Return how many messages were attempted."""
        attempted = 0
        while not self._stopping and attempted < self.max_per_wake:
            count = self.send_next(lane, claimed=claimed)
            if not count:
                break
            attempted += count
        return attempted

    def wake(self, now: datetime) -> None:
        """Send what is due. Each thread that finds a message starts the next one: busy ones may hang for long."""
        if self.level is not None:
            self.level.follow(lambda: self.in_flight)
        if self._is_due(now):
            for lane in self.lanes:
                self._start(lane)

    def _is_due(self, now: datetime) -> bool:
        """Return whether a message may be claimed. It costs a fraction of a claim, of which most would find nothing."""
        free = Q(leased_until=None) | Q(leased_until__lte=now)
        return self._rows().filter(free, state__in=OPEN, next_try_at__lte=now).exists()

    def stop(self, *, grace_sec: float = STOP_SEC, **_: object) -> None:
        """Send nothing more, and wait up to `grace_sec` for running attempts. Leases of others expire."""
        with self._changed:
            self._stopping = True
            self._changed.wait_for(lambda: not self.in_flight, timeout=grace_sec)

    def _start(self, lane: Lane) -> None:
        """Start a thread of the lane, if one is idle."""
        with self._changed:
            if self._stopping or self._running[lane] >= lane.threads:
                return
            self._running[lane] += 1
        try:
            threading.Thread(target=self._work, args=(lane,), name="sender", daemon=True).start()
        except RuntimeError as error:  # the process may have no more threads; the running ones go on
            logger.warning("no further sender: %s", error)
            self._end(lane)

    def _work(self, lane: Lane) -> None:
        try:
            self.send_due(lane, claimed=lambda: self._start(lane))
        except DatabaseError as error:
            logger.warning("messages wait for the database: %s", error)
        finally:
            release_connection()
            self._end(lane)

    def _end(self, lane: Lane) -> None:
        with self._changed:
            self._running[lane] -= 1
            self._changed.notify_all()

    def finish(self, message: M, result: SendResult, *, now: datetime) -> Notification.State | None:
        """Store the result of an attempt and return the new state. Return None if another sender has claimed it."""
        changes: dict[str, Any] = {"leased_until": None, "last_error": None if result.delivered else result.detail}
        if result.delivered:
            state = State.SENT
        elif not result.retry or now >= message.give_up_at:
            state = State.DEAD
        else:
            state = State.WAITING
            changes["next_try_at"] = now + backoff(message.attempts)
        if state is not State.WAITING:
            changes |= {"state": state, "done_at": now}
        with transaction.atomic():
            if not self.lock_receiver(message):
                return None
            own = self._rows().filter(pk=message.pk, attempts=message.attempts, state=State.WAITING)
            if not own.update(**changes):
                return None
            self.finished(message, state, result, now)
        return state

    def replay(self, ids: Collection[int], *, now: datetime) -> BulkResult[M]:
        """Send the dead ones of these messages again, for RETRY_FOR. Concurrent calls replay each once."""
        with transaction.atomic():
            locked = self._rows().select_for_update().filter(pk__in=ids).order_by("pk")
            dead = [message for message in locked if message.state == State.DEAD]
            self._rows().filter(pk__in=[message.pk for message in dead]).update(
                state=State.WAITING, next_try_at=now, give_up_at=now + RETRY_FOR, leased_until=None, done_at=None
            )
        alive = len(locked) - len(dead)
        return BulkResult(dead, {"sent or still being retried": alive} if alive else {})

    def delete_old(self, before: datetime) -> None:
        """Delete the messages that were sent or given up before this time."""
        self._rows().filter(done_at__lt=before).exclude(state__in=OPEN).delete()
