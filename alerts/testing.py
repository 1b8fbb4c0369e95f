"""Tests of channels while a caller waits: one attempt by a worker, past the outbox, but logged.

They never start in the web process, whose address no customer has allowed, as in `monitors.probing.interactive`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TypedDict

from django.conf import settings

from alerts import messages, outbox
from alerts.events import EventType, Payload
from alerts.models import AlertChannel
from alerts.transports import KINDS
from core import replies
from core.clock import to_ms, utc_now
from core.db import release_connection
from core.errors import NotConfirmed, NoWorker
from core.ids import delivery_id
from notifications.workers import FairThreads

PATIENCE_SEC = 25.0
TESTS = 16
TESTS_OF_OWNER = 3


class ChannelTest(TypedDict):
    delivered: bool
    detail: str | None


def send_test(channel: AlertChannel) -> ChannelTest:
    """Return the result of the test. Raise NotConfirmed, or NoWorker after PATIENCE_SEC."""
    if channel.confirmed_at is None:
        raise NotConfirmed
    answer = replies.ask("alerts.tasks.send_test", [channel.pk], ChannelTest, queue="alerts", patience_sec=PATIENCE_SEC)
    if answer is None:
        raise NoWorker("No worker sent the test in time; try again in a moment.")
    return answer


def submit_test(channel_id: int, reply_to: str) -> None:
    """Run a test in a thread, and post its result. Skip it if it had to wait until the caller gave up."""
    owner = AlertChannel.objects.filter(pk=channel_id).values_list("owner_id", flat=True).first()
    given_up = time.monotonic() + PATIENCE_SEC

    def work() -> None:
        if time.monotonic() < given_up:
            replies.post(reply_to, run_test(channel_id))

    _threads().submit(owner, work)


def run_test(channel_id: int) -> ChannelTest:
    channel = AlertChannel.objects.filter(pk=channel_id, confirmed_at__isnull=False).first()
    if channel is None:
        return {"delivered": False, "detail": "The channel was deleted, or nothing may be sent there any more."}
    kind, config = KINDS[channel.kind], channel.config
    now, key = utc_now(), delivery_id()
    payload = Payload(EventType.TEST, at=to_ms(now))
    message = messages.render([payload], key=key, base_url=settings.BASE_URL, now=now)
    release_connection()
    result = kind.send(config, message, key=key, now=now)
    outbox.log_test(channel_id, payload, key=key, result=result, now=utc_now())
    return {"delivered": result.delivered, "detail": result.detail}


@cache
def _threads() -> FairThreads:
    return FairThreads("channel-test", threads=TESTS, most_of_owner=TESTS_OF_OWNER)
