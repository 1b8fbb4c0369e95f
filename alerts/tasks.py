"""What workers do about alerts."""

from __future__ import annotations

from functools import partial

from celery import shared_task

from alerts import announcing, reminding, sending
from alerts.sender import THREADS, sender
from core.clock import utc_now
from incidents import consuming


@shared_task(name="alerts.tasks.tick")
def tick() -> None:
    """From status changes to messages on their way. Any number at once: one at a time does the first part."""
    now = utc_now()
    while consuming.consume(now, slow=partial(announcing.tell_slow, now=now)) == consuming.BATCH:
        pass
    consuming.close_deleted(now)
    announcing.announce(now)
    announcing.tell_expiries(now)
    sender().wake(sending.due(now, most=THREADS))


@shared_task(name="alerts.tasks.remind")
def remind() -> None:
    """What can wait for a minute: new reasons of old outages, and reminders of them."""
    now = utc_now()
    consuming.follow_monitors()
    consuming.note_reasons(now)
    reminding.remind(now)


@shared_task(name="alerts.tasks.sweep")
def sweep() -> None:
    sending.delete_old(utc_now())
