"""The canary: test requests to BASE_URL, a ping that must be stored and a page that must be answered.

`monitors.heartbeats.own_requests` sends them; this module interprets and stores their results. They take the path of
all requests: name, address, certificate, proxy, accept queue, event loop, threads, database. So a fault that keeps
pings away shows within seconds, and accounts can neither forge nor hide the evidence. See docs/adr/0039.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, transaction

from monitors.heartbeats import gaps
from monitors.models import Canary

logger = logging.getLogger(__name__)

SLOW_MS = 1_000
RESTED = timedelta(seconds=60)
LEAST_APART = timedelta(seconds=1)
LONGEST = timedelta(seconds=20)
"""An attempt without a result has been lost after this time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request. `error` is None if the answer was correct.

    With `is_unknown` the request did not leave this machine, or its name server did not answer, which says nothing
    about the way of other requests.
    """

    ms: int
    error: str | None = None
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Requests:
    """The state of one kind of our own requests, as in `monitors.models.Canary`."""

    ok_at: datetime | None
    failing_since: datetime | None
    error: str | None
    ms: int | None

    @property
    def is_up(self) -> bool | None:
        """Return whether they are answered, or None if none ever was at this BASE_URL, or none could be sent."""
        if self.ok_at is None or (self.error is not None and self.failing_since is None):
            return None
        return self.failing_since is None


@dataclass(frozen=True, slots=True)
class CanaryStatus:
    """The state of requests to BASE_URL. `answered_at`: the end of the last attempt."""

    answered_at: datetime
    ping: Requests
    page: Requests

    @property
    def kinds(self) -> dict[str, Requests]:
        return {"ping": self.ping, "page": self.page}

    def problems(self, now: datetime) -> list[str]:
        """Return the problems that pings and visitors have, or may have. An unknown result is not a problem."""
        if all(kind.ok_at is None for kind in self.kinds.values()):
            return []
        if now - self.answered_at > RESTED:
            return [f"no request to BASE_URL was made for {(now - self.answered_at).total_seconds():.0f} s"]
        found = []
        for name, kind in self.kinds.items():
            if kind.is_up is False and kind.failing_since is not None:
                since = (now - kind.failing_since).total_seconds()
                found.append(f"a {name} at BASE_URL has failed for {max(since, 0):.0f} s: {kind.error}")
            elif kind.is_up and kind.ms is not None and kind.ms > SLOW_MS:
                found.append(f"a {name} at BASE_URL took {kind.ms} ms")
        return found


def begin(base_url: str) -> tuple[str, datetime] | None:
    """Begin an attempt. Return the id to ping and the time, or None if another attempt runs or just ended."""
    with connection.cursor() as cursor:
        times: dict[str, Any] = {"longest": LONGEST, "apart": LEAST_APART}
        cursor.execute(
            """
            INSERT INTO monitors_canary AS canary (id, public_id, base_url, asked_at)
            VALUES (1, %(public_id)s, %(base_url)s, clock_timestamp())
                ON CONFLICT (id) DO UPDATE
               SET asked_at = EXCLUDED.asked_at
             WHERE canary.asked_at IS NULL
                OR canary.asked_at <= EXCLUDED.asked_at - %(longest)s
                OR canary.answered_at >= canary.asked_at AND canary.answered_at <= EXCLUDED.asked_at - %(apart)s
            RETURNING public_id, asked_at
            """,
            {"public_id": Canary().public_id, "base_url": base_url, **times},
        )
        found: tuple[str, datetime] | None = cursor.fetchone()
        return found


def note_seen(public_ids: Collection[str]) -> set[str]:
    """Store that pings of the canary arrived. Return which of the ids are the canary's.

    It never waits for the lock of `record`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH found AS (SELECT id, public_id FROM monitors_canary WHERE public_id = ANY(%(public_ids)s)),
                 free AS (SELECT id FROM monitors_canary WHERE id IN (SELECT id FROM found) FOR UPDATE SKIP LOCKED),
                 stored AS (UPDATE monitors_canary SET seen_at = clock_timestamp() WHERE id IN (SELECT id FROM free))
            SELECT public_id FROM found
            """,
            {"public_ids": list(public_ids)},
        )
        return {public_id for (public_id,) in cursor.fetchall()}


def record(asked_at: datetime, ping: Answer, page: Answer, *, now: datetime | None = None) -> None:
    """Store the answers of the attempt that began at `asked_at`, and begin or end a gap."""
    with transaction.atomic():
        canary = Canary.objects.select_for_update().filter(asked_at=asked_at).first()
        if canary is None:  # a later attempt has begun
            return
        now = _database_time() if now is None else now
        if canary.base_url != settings.BASE_URL:
            canary = Canary(public_id=canary.public_id, asked_at=asked_at, seen_at=canary.seen_at)
            canary.base_url = settings.BASE_URL
        if ping.error is None and (canary.seen_at is None or canary.seen_at < asked_at):
            ping = Answer(ping.ms, "the ping was answered, but not stored in this database")
        was_failing = canary.ping_failing_since is not None
        last_ok_at = canary.ping_ok_at
        if not ping.is_unknown:
            if ping.error is None:
                canary.ping_ok_at, canary.ping_failing_since = asked_at, None
            else:
                canary.ping_failing_since = canary.ping_failing_since or now
        if not page.is_unknown:
            if page.error is None:
                canary.page_ok_at, canary.page_failing_since = asked_at, None
            else:
                canary.page_failing_since = canary.page_failing_since or now
        canary.ping_ms, canary.page_ms = ping.ms, page.ms
        canary.ping_error, canary.page_error = ping.error, page.error
        canary.answered_at = now
        if canary.ping_failing_since is None:
            if canary.ping_ok_at == asked_at:
                gaps.end(now)
                if not was_failing and last_ok_at is not None:
                    gaps.note_unknown(last_ok_at, asked_at)
        elif canary.ping_ok_at is not None:
            gaps.begin(canary.ping_ok_at, f"A ping of our own to BASE_URL fails: {ping.error}", now=now)
        canary.save(force_update=True)
    if ping.error is not None and not was_failing and canary.ping_ok_at is not None:
        logger.error("a ping to BASE_URL fails: %s", ping.error)


_STATUS = """
    SELECT answered_at, ping_ok_at, ping_failing_since, ping_error, ping_ms,
           page_ok_at, page_failing_since, page_error, page_ms
      FROM monitors_canary
     WHERE answered_at IS NOT NULL
"""


def canary_status(database: psycopg.Connection) -> CanaryStatus | None:
    """Return what is known about requests to BASE_URL, or None before the first attempt. Raises psycopg.Error."""
    row = database.execute(_STATUS).fetchone()
    return None if row is None else CanaryStatus(row[0], Requests(*row[1:5]), Requests(*row[5:9]))


def _database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment
