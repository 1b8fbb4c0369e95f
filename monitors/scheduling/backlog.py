"""The amount of waiting work: in the queues, which the dispatcher checks before it enqueues, and in the database."""

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
    """Return the number of messages that no worker has taken. Raises RedisError if the broker is unreachable."""
    # kombu stores a queue without priorities as a list under its name.
    return int(_client(settings.REDIS_URL).llen(queue))


@dataclass(frozen=True, slots=True)
class Backlog:
    """Due monitors that are not claimed. `oldest_due_at`: None without any. `last_tick_at`: None before the first.

    `pings_missing_since` is the start of the open gap in which pings cannot reach us, if any.
    """

    oldest_due_at: datetime | None
    due: int
    last_tick_at: datetime | None
    pings_missing_since: datetime | None


# The first two read only the start of the partial index, so the cost depends on the due rows and not on all rows.
_BACKLOG = """
    SELECT (SELECT min(next_due_at) FROM monitors_monitorstate WHERE next_due_at <= %(now)s),
           (SELECT count(*) FROM (
               SELECT FROM monitors_monitorstate WHERE next_due_at <= %(now)s LIMIT %(most)s
           ) AS due),
           (SELECT at FROM monitors_schedulertick),
           (SELECT min(started_at) FROM monitors_pinggap WHERE ended_at IS NULL)
"""


def backlog(database: psycopg.Connection, *, now: datetime, most: int) -> Backlog:
    """Return the backlog at `now`. Counting stops at `most`. Raises psycopg.Error."""
    row = database.execute(_BACKLOG, {"now": now, "most": most}).fetchone()
    assert row is not None
    return Backlog(*row)
