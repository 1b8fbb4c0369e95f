"""How much work waits: in the queues, which the dispatcher asks before it adds to them, and in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache

import psycopg
import redis
from django.conf import settings


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3)


def queued(queue: str) -> int:
    """Messages that no worker has taken yet. Raises RedisError where the broker is out of reach."""
    # What kombu makes of a queue without priorities: a list under its name.
    return int(_client(settings.REDIS_URL).llen(queue))


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is due and not claimed. `oldest_due_at`: None where nothing is; `last_tick_at`: None before the first."""

    oldest_due_at: datetime | None
    due: int
    last_tick_at: datetime | None


# Both read the beginning of the partial index alone, so they cost what is due and not what there is.
_BACKLOG = """
    SELECT (SELECT min(next_due_at) FROM monitors_monitorstate WHERE next_due_at <= %(now)s),
           (SELECT count(*) FROM (
               SELECT FROM monitors_monitorstate WHERE next_due_at <= %(now)s LIMIT %(most)s
           ) AS due),
           (SELECT at FROM monitors_schedulertick)
"""


def backlog(database: psycopg.Connection, *, now: datetime, most: int) -> Backlog:
    """As it stands now; counting ends at `most`. Raises psycopg.Error."""
    row = database.execute(_BACKLOG, {"now": now, "most": most}).fetchone()
    assert row is not None
    return Backlog(*row)
