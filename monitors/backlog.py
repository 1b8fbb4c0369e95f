"""How much work lies in the queues already: what the dispatcher asks before it adds to it."""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3)


def queued(queue: str) -> int:
    """Messages that no worker has taken yet. Raises RedisError where the broker is out of reach."""
    # What kombu makes of a queue without priorities: a list under its name.
    return int(_client(settings.REDIS_URL).llen(queue))
