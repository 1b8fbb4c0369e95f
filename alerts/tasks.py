"""What workers do for alerts."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.conf import settings

from alerts import messages, transports
from alerts.facts import Facts, News
from alerts.models import AlertChannel
from checks import mailbox
from core.clock import to_ms, utc_now
from core.db import release_connection
from core.ids import delivery_id


@shared_task(name="alerts.tasks.send_test")
def send_test(channel_id: int, reply_to: str) -> None:
    """A test of a channel that somebody waits for: one try, past outbox and retries."""
    mailbox.post(reply_to, _test(channel_id))


def _test(channel_id: int) -> dict[str, Any]:
    channel = AlertChannel.objects.filter(pk=channel_id).first()
    if channel is None:
        return {"delivered": False, "detail": "The channel has just been deleted."}
    kind, config = channel.kind, channel.config
    now, key = utc_now(), delivery_id()
    facts = Facts(news=News.TEST, at=to_ms(now))
    message = messages.render([facts], key=key, base_url=settings.BASE_URL, now=now)
    release_connection()
    outcome = transports.send(kind, config, message, key=key, now=now)
    return {"delivered": outcome.delivered, "detail": outcome.detail}
