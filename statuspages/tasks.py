"""What workers do for status pages."""

from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from statuspages import events, mailing, subscriptions


@shared_task(name="statuspages.tasks.tick")
def tick() -> None:
    """Turn news into mails and send them, in a thread of their own: Celery's threads never wait for a mail server."""
    now = utc_now()
    events.add_outage_events(now)
    events.address(now)
    mailing.senders().wake(now)


@shared_task(name="statuspages.tasks.sweep")
def sweep() -> None:
    """Forget addresses whose owners never agreed, and news of long ago."""
    now = utc_now()
    subscriptions.forget_unconfirmed(now)
    events.forget_old(now)
