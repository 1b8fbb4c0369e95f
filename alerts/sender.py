"""The threads of a worker that send messages. Celery's own threads never wait for a receiver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import cache

from celery.signals import worker_shutdown
from django.conf import settings
from django.db import DatabaseError

from alerts import messages, metrics, sending, transports
from alerts.facts import Facts
from alerts.models import AlertChannel
from alerts.transports import Outcome
from core.clock import utc_now
from core.db import release_connection

logger = logging.getLogger(__name__)

THREADS = 16
ANY_THREADS = 8
"""Of those, how many serve any channel; the others only those whose last try did not fail."""
STOP_SEC = 2.5


class Sender:
    """Threads that live as long as there is something to send. One per process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._stopping = False

    def wake(self, due: int) -> None:
        """Have so many threads at work, as far as there are so many."""
        with self._changed:
            idle = [] if self._stopping else [n for n in range(THREADS) if n not in self._running]
            started = idle[: max(0, due - len(self._running))]
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
    claimed = sending.claim(utc_now(), healthy_only=healthy_only)
    if claimed is None:
        return False
    channel, items = sending.load(claimed)
    release_connection()
    if channel is None:
        outcome = Outcome(delivered=False, detail="The channel is switched off.", retry=False)
    else:
        outcome = _try(channel, items, claimed.key)
    state = sending.finish(
        claimed, delivered=outcome.delivered, detail=outcome.detail, retry=outcome.retry, now=utc_now()
    )
    metrics.DELIVERIES.add(1, "overtaken" if state is None else state.value)
    return True


def _try(channel: AlertChannel, items: Sequence[Facts], key: str) -> Outcome:
    now = utc_now()
    try:
        message = messages.render(items, key=key, base_url=settings.BASE_URL, now=now)
        return transports.send(channel.kind, channel.config, message, key=key, now=now)
    except Exception:
        # A fault of ours must cost this message only, and only as long as any that fails; the next are to be sent.
        logger.exception("the alert %s could not be sent", key)
        return Outcome(delivered=False, detail="Something broke on our side; it has been logged.")


@cache
def sender() -> Sender:
    return Sender()


@worker_shutdown.connect
def leave(**_: object) -> None:
    sender().stop(grace_sec=STOP_SEC)
