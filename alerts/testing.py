"""Tests of channels that somebody waits for: handed to a worker over queue `alerts`, the answer over the broker.

Like checks (`monitors.probing.interactive`) they never run in the web process, whose address no customer has allowed.
"""

from __future__ import annotations

import logging
from typing import TypedDict

from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from alerts.models import AlertChannel
from core import replies
from core.db import release_connection
from core.errors import NotConfirmed, NoWorker

logger = logging.getLogger(__name__)

PATIENCE_SEC = 25.0


class ChannelTest(TypedDict):
    delivered: bool
    detail: str | None


def send_test(channel: AlertChannel) -> ChannelTest:
    """Return the result of the test. Raises NotConfirmed, or NoWorker after PATIENCE_SEC."""
    if channel.confirmed_at is None:
        raise NotConfirmed
    answer = _ask(channel.pk)
    if answer is None:
        raise NoWorker("No worker sent the test in time; try again in a moment.")
    return answer


def _ask(channel_pk: int) -> ChannelTest | None:
    address = replies.new_address()
    release_connection()
    try:
        current_app.send_task(
            "alerts.tasks.send_test", [channel_pk, address], queue="alerts", expires=PATIENCE_SEC
        )
        return replies.wait(address, ChannelTest, timeout_sec=PATIENCE_SEC)
    except (OperationalError, RedisError) as error:
        logger.warning("the broker does not answer: %s", error)
        return None
