"""Celery tasks of status pages."""

from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from statuspages import domains, events, mailing, subscriptions


@shared_task(name="statuspages.tasks.tick")
def tick() -> None:
    """Create and send mails to subscribers."""
    now = utc_now()
    events.add_outage_events(now)
    events.create_mails(now)
    mailing.OUTBOX.wake(now)


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
