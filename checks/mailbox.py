"""Where a worker leaves the answer that a web process waits for: a list of one, in the broker."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import redis
from django.conf import settings

from core.ids import random_text

KEPT_SEC = 120
SILENCE_SEC = 90  # past the longest wait, a check's 60 s and the queue; redis-py would give up after 5


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=SILENCE_SEC)


def new_address() -> str:
    return f"reply:{random_text(16)}"


def post(address: str, answer: Any) -> None:
    """Leave the answer; if nobody fetches it, it goes by itself."""
    with _client(settings.REDIS_URL).pipeline() as pipe:
        pipe.rpush(address, json.dumps(answer))
        pipe.expire(address, KEPT_SEC)
        pipe.execute()


def wait(address: str, *, timeout_sec: float) -> Any | None:
    """The answer, or None where none came in time. Raises RedisError where the broker is out of reach."""
    taken = _client(settings.REDIS_URL).blpop([address], timeout=timeout_sec)
    return None if taken is None else json.loads(taken[1])
