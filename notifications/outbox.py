"""The one outbox: messages are rows that are claimed, sent, and marked afterwards.

A sender that dies leaves a lease. When it ends, the message is sent again with the same key: messages arrive at least
once, and receivers can drop repetitions. An app that sends messages subclasses `Notification` and `Outbox`.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from django.db import models, transaction
from django.db.models import Q

from core.bulk import BulkResult
from core.clock import utc_now
from core.db import release_connection
from core.metrics import Counter, Labels
from core.text import shorten
from notifications.models import Notification

FIRST_RETRY = timedelta(seconds=10)
LONGEST_RETRY = timedelta(hours=1)
JITTER = 0.2
RETRY_FOR = timedelta(hours=24)
DETAIL_CHARS = 500

State = Notification.State
OPEN = (State.GATHERING, State.WAITING)
OVERTAKEN = "overtaken"
OUTCOMES = (State.SENT.value, State.WAITING.value, State.DEAD.value, OVERTAKEN)
"""The outcomes of an attempt. An attempt is overtaken if another sender has claimed the message since."""

M = TypeVar("M", bound=Notification)

DUE = """
    candidate.state IN ('gathering', 'waiting')
    AND candidate.next_try_at <= %(now)s
    AND (candidate.leased_until IS NULL OR candidate.leased_until <= %(now)s)
"""
_CLAIM = """
    WITH {chosen}
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


class Outbox(ABC, Generic[M]):
    """The messages of one app.

    `chosen` is SQL: common table expressions. The last one, named `chosen`, selects and locks the ids to claim next by
    the app's rules of order and fairness. It gets `now` and `limits()` as parameters. `lease` exceeds the duration of
    any attempt. A wake-up sends at most `max_per_wake` messages per thread.
    """

    model: type[M]
    chosen: ClassVar[str]
    lease: ClassVar[timedelta]
    max_per_wake: ClassVar[int | None] = None
    counter: ClassVar[Counter]
    """Counts attempts by outcome (`OUTCOMES`), and by further `labels`."""

    def __init__(self) -> None:
        # Concurrent claims do not see each other's rows, and could exceed the limits.
        self._claiming = threading.Lock()

    def _rows(self) -> models.QuerySet[M]:
        return self.model._default_manager.all()

    @abstractmethod
    def attempt(self, claimed: Sequence[M]) -> Iterator[tuple[M, SendResult]]:
        """Send claimed messages, without a transaction. Yield each with its result."""

    def limits(self) -> dict[str, Any]:
        """Return further parameters of `chosen`."""
        return {}

    def lock_receiver(self, message: M) -> bool:
        """Lock what is locked before a message is updated. Return False if the message is deleted with it."""
        return True

    def labels(self, message: M) -> Labels | None:
        """Return the values of the counter's labels after the outcome. Return None if the message was deleted."""
        return ()

    def finished(self, message: M, state: Notification.State, result: SendResult, now: datetime) -> None:
        """Record an attempt elsewhere, in the transaction that updates the message."""

    def claim(self, now: datetime, *, healthy_only: bool = False) -> list[M]:
        """Claim the messages to send next. The claim is committed on return."""
        statement = _CLAIM.format(chosen=self.chosen, table=self.model._meta.db_table)
        parameters = {"now": now, "lease_end": now + self.lease, "healthy_only": healthy_only}
        return list(self._rows().raw(statement, parameters | self.limits()))

    def due(self, now: datetime, *, most: int) -> int:
        """Count the messages to send, up to `most`."""
        free = Q(leased_until=None) | Q(leased_until__lte=now)
        return self._rows().filter(free, state__in=OPEN, next_try_at__lte=now)[:most].count()

    def send_next(self, *, healthy_only: bool = False) -> int:
        """Claim and send the next messages. Return how many were attempted."""
        with self._claiming:
            claimed = self.claim(utc_now(), healthy_only=healthy_only)
        for message, result in self.attempt(claimed) if claimed else ():
            state = self.finish(message, result, now=utc_now())
            labels = self.labels(message)
            release_connection()
            if labels is not None:
                self.counter.add(1, OVERTAKEN if state is None else state.value, *labels)
        return len(claimed)

    def send_due(self, *, healthy_only: bool = False, stopped: Callable[[], bool] = lambda: False) -> int:
        """Send what is due, up to `max_per_wake`. Return how many messages were attempted."""
        attempted = 0
        while not stopped() and (self.max_per_wake is None or attempted < self.max_per_wake):
            count = self.send_next(healthy_only=healthy_only)
            if not count:
                break
            attempted += count
        return attempted

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
        return BulkResult(dead, {"sent, or still tried": alive} if alive else {})

    def delete_old(self, before: datetime) -> int:
        """Delete the messages that were sent or given up before this time. Return how many rows were deleted."""
        deleted, _ = self._rows().filter(done_at__lt=before).exclude(state__in=OPEN).delete()
        return deleted
