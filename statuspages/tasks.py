"""What workers do for status pages."""

from __future__ import annotations

from celery import shared_task

from alerts.sender import sender
from core.clock import utc_now
from statuspages import mailing, news, subscribing


@shared_task(name="statuspages.tasks.tick")
def tick() -> None:
    """From news to mails on their way. They are sent aside: Celery's own threads never wait for a mail server."""
    now = utc_now()
    news.tell_outages(now)
    news.address(now)
    if mailing.is_due(now):
        sender().aside(mailing.send_due)


@shared_task(name="statuspages.tasks.sweep")
def sweep() -> None:
    """Forget addresses whose owners never agreed, and news of long ago."""
    now = utc_now()
    subscribing.forget_unconfirmed(now)
    news.forget_old(now)
