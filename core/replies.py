"""Reply queues: how a worker answers a web process that waits, over a list of one item in the broker."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, TypeVar

import msgspec
import redis
from django.conf import settings

from core.ids import random_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_SEC = 120
SILENCE_SEC = 90  # past the longest wait, a check's 60 s and the queue; redis-py would give up after 5


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=SILENCE_SEC)


def new_address() -> str:
    return f"reply:{random_text(16)}"


def post(address: str, answer: Any) -> None:
    """Send the answer. It expires if it is not fetched."""
    with _client(settings.REDIS_URL).pipeline() as pipe:
        pipe.rpush(address, msgspec.json.encode(answer))
        pipe.expire(address, KEPT_SEC)
        pipe.execute()


def wait(address: str, kind: type[T], *, timeout_sec: float) -> T | None:
    """Return the answer, or None if none came in time or it is no `kind`. Raises RedisError."""
    taken = _client(settings.REDIS_URL).blpop([address], timeout=timeout_sec)
    if taken is None:
        return None
    try:
        return msgspec.json.decode(taken[1], type=kind)
    except (ValueError, RecursionError) as error:
        logger.warning("dropped a malformed answer from the broker: %s", error)
        return None
