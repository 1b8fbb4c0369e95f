"""Celery tasks of status pages."""

from __future__ import annotations

import threading
import time

from celery import shared_task

from core.clock import utc_now
from statuspages import domains, events, mailing, subscriptions

TICK_SEC = 30.0

_ticking = threading.Lock()


@shared_task(name="statuspages.tasks.tick")
def tick() -> None:
    """Create and send mails to subscribers, in one thread of a process: the others are for alerts and first checks."""
    if not _ticking.acquire(blocking=False):
        return
    try:
        end = time.monotonic() + TICK_SEC
        if events.is_any_waiting(utc_now()):
            events.add_outage_events(utc_now())
            while events.create_mails(utc_now()) and time.monotonic() < end:
                mailing.OUTBOX.wake(utc_now())
        mailing.OUTBOX.wake(utc_now())
    finally:
        _ticking.release()


@shared_task(name="statuspages.tasks.verify_domains")
def verify_domains() -> None:
    """Look for the TXT records of custom domains that are not verified yet."""
    domains.verify_due(utc_now())


@shared_task(name="statuspages.tasks.sweep")
def sweep() -> None:
    """Delete unconfirmed subscribers and old events."""
    now = utc_now()
    subscriptions.delete_unconfirmed(now)
    events.delete_old(now)
