"""What workers do about alerts."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from celery import shared_task
from django.conf import settings

from alerts import messages, notify, reminding, sending
from alerts.events import EventType, Payload
from alerts.models import AlertChannel
from alerts.sender import THREADS, sender, tests
from alerts.testing import PATIENCE_SEC
from alerts.transports import KINDS
from core import replies
from core.clock import to_ms, utc_now
from core.db import release_connection
from core.ids import delivery_id
from incidents import consuming, windows


@shared_task(name="alerts.tasks.tick")
def tick() -> None:
    """From status changes to messages on their way. Any number at once: one at a time does the first part."""
    now = utc_now()
    while consuming.consume(now, slow=partial(notify.notify_slow, now=now)) == consuming.BATCH:
        pass
    consuming.close_deleted(now)
    notify.notify_incidents(now)
    notify.notify_expiries(now)
    sender().wake(sending.due(now, most=THREADS))


@shared_task(name="alerts.tasks.remind")
def remind() -> None:
    """Do what can wait for a minute: new reasons of open outages, reminders, and maintenance for daily uptime."""
    now = utc_now()
    consuming.follow_monitors()
    consuming.note_reasons(now)
    reminding.remind(now)
    windows.note_maintenance(now)


@shared_task(name="alerts.tasks.sweep")
def sweep() -> None:
    """Forget deliveries that were done with long ago."""
    sending.delete_old(utc_now())


@shared_task(name="alerts.tasks.send_test")
def send_test(channel_id: int, reply_to: str) -> None:
    """Test a channel for a caller who waits: one try, past outbox and retries, but logged.

    The caller gives up after PATIENCE_SEC. A test that waits behind others of its account for longer is not sent.
    """
    owner = AlertChannel.objects.filter(pk=channel_id).values_list("owner_id", flat=True).first()
    given_up = time.monotonic() + PATIENCE_SEC

    def work() -> None:
        if time.monotonic() < given_up:
            replies.post(reply_to, _test(channel_id))

    tests().submit(owner, work)


def _test(channel_id: int) -> dict[str, Any]:
    channel = AlertChannel.objects.filter(pk=channel_id, confirmed_at__isnull=False).first()
    if channel is None:
        return {
            "delivered": False,
            "detail": "The channel was deleted, or nothing may be sent there any more.",
        }
    kind, config = channel.kind, channel.config
    now, key = utc_now(), delivery_id()
    payload = Payload(event_type=EventType.TEST, at=to_ms(now))
    message = messages.render([payload], key=key, base_url=settings.BASE_URL, now=now)
    release_connection()
    outcome = KINDS[kind].send(config, message, key=key, now=now)
    sending.log_test(
        channel_id, payload, key=key, delivered=outcome.delivered, detail=outcome.detail, now=utc_now()
    )
    return {"delivered": outcome.delivered, "detail": outcome.detail}
