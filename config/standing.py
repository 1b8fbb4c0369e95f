"""How Pulsekeeper stands as a whole, for the health page of the admin.

Each source is asked by itself and for a bounded time, so that one that is away leaves the others to be shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import psycopg
import redis
from django.conf import settings
from kombu.exceptions import KombuError

from alerts.backlog import oldest_alert
from checks.results.partitions import SERIES, Series
from config import celery_app
from config.health import look
from config.metrics import MOST_DUE
from config.routing import QUEUES
from core.db import hasty_connection
from core.metrics import read_levels
from monitors import metrics
from monitors.scheduling.backlog import Backlog, backlog, queued

logger = logging.getLogger(__name__)

PATIENCE_SEC = 2
WORKERS_SEC = 0.5
"""Those that have not answered by then are taken for gone, or for hopelessly busy."""
MOST_COUNTED = 10_000
TABLES = 12

# Each count reads the beginning of a partial index.
_COUNTS = """
    SELECT (SELECT count(*) FROM (SELECT FROM alerts_delivery WHERE state = 'dead' LIMIT %(most)s) AS found),
           (SELECT count(*) FROM (SELECT FROM statuspages_pagemail WHERE state = 'dead' LIMIT %(most)s) AS found),
           (SELECT count(*) FROM (SELECT FROM statuspages_pagemail WHERE state = 'waiting' LIMIT %(most)s) AS found),
           (SELECT count(*) FROM (
               SELECT FROM alerts_delivery WHERE state IN ('gathering', 'waiting') LIMIT %(most)s) AS found),
           (SELECT count(*) FROM (SELECT FROM checks_deletedmonitor LIMIT %(most)s) AS found),
           (SELECT rolled_until FROM checks_rollupprogress),
           (SELECT count(*) FROM (
               SELECT FROM alerts_alertchannel AS channel
                WHERE channel.failures > 0
                  AND EXISTS (SELECT FROM alerts_delivery AS delivery
                               WHERE delivery.channel_id = channel.id AND delivery.state = 'waiting')
                LIMIT %(most)s) AS found),
           (SELECT max(last_sent_at) FROM alerts_alertchannel)
"""
# Partitions are counted in with the table that they are of; rows are what the planner takes them for.
_TABLES = """
    SELECT coalesce(pg_partition_root(oid), oid)::regclass::text AS name,
           sum(pg_total_relation_size(oid))::bigint AS bytes,
           sum(greatest(reltuples, 0))::bigint AS rows
      FROM pg_class
     WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
     GROUP BY 1
     ORDER BY 2 DESC
     LIMIT %(tables)s
"""
_LAST_PART = """
    SELECT max(part.relname) FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
     WHERE inhparent = to_regclass(%(table)s) AND part.relname <> %(default)s
"""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Of the database. Counts end at MOST_COUNTED. `ahead`: for how long there are partitions, by table.

    `failing_channels` have messages to send, and their last try failed.
    """

    backlog: Backlog
    alert_since: datetime | None
    dead_deliveries: int
    dead_mails: int
    waiting_mails: int
    waiting_deliveries: int
    deleted_monitors: int
    rolled_until: datetime | None
    failing_channels: int
    last_sent_at: datetime | None
    bytes: int
    tables: Sequence[Table]
    ahead: Mapping[str, timedelta | None]


@dataclass(frozen=True, slots=True)
class Brokered:
    """Of the broker: messages that wait, by queue, checks that workers hold, and the queues of workers that answer,
    by name.
    """

    queues: Mapping[str, int]
    in_flight: int
    workers: Mapping[str, Sequence[str]]

    @property
    def unserved(self) -> Sequence[str]:
        """Queues that no worker takes from."""
        served = {queue for queues in self.workers.values() for queue in queues}
        return [queue for queue in self.queues if queue not in served]


@dataclass(frozen=True, slots=True)
class Standing:
    """None is what could not be asked; `checks` are those of /readyz: `ok`, or what is wrong, by name.

    `mail` is what keeps mails from leaving, or None.
    """

    checks: Mapping[str, str]
    stored: Stored | None
    brokered: Brokered | None
    mail: str | None


def standing(*, now: datetime) -> Standing:
    """Asked at the same time, so that it takes as long as the slowest answer."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        checks, stored, brokered = pool.submit(look), pool.submit(_stored, now), pool.submit(_brokered)
        mail = pool.submit(_mail)
        return Standing(checks.result(), stored.result(), brokered.result(), mail.result())


def _mail() -> str | None:
    # Imported here: the web process does not load what sends until staff look at this page.
    from alerts.transports.email import reach_server

    return reach_server(PATIENCE_SEC)


def _stored(now: datetime) -> Stored | None:
    try:
        with hasty_connection(patience_sec=PATIENCE_SEC) as database:
            waiting = backlog(database, now=now, most=MOST_DUE)
            alert = oldest_alert(database, now=now)
            counts = database.execute(_COUNTS, {"most": MOST_COUNTED}).fetchone()
            size = database.execute("SELECT pg_database_size(current_database())").fetchone()
            tables = database.execute(_TABLES, {"tables": TABLES}).fetchall()
            ahead = {series.table: _ahead(database, series, now) for series in SERIES}
    except psycopg.Error as error:
        logger.warning("the health page shows nothing of the database: %s", error)
        return None
    assert counts is not None
    assert size is not None
    dead_deliveries, dead_mails, waiting_mails, waiting_deliveries, deleted, rolled_until, failing, sent = (
        counts
    )
    return Stored(
        backlog=waiting,
        alert_since=alert,
        dead_deliveries=dead_deliveries,
        dead_mails=dead_mails,
        waiting_mails=waiting_mails,
        waiting_deliveries=waiting_deliveries,
        deleted_monitors=deleted,
        rolled_until=rolled_until,
        failing_channels=failing,
        last_sent_at=sent,
        bytes=size[0],
        tables=[Table(*row) for row in tables],
        ahead=ahead,
    )


def _ahead(database: psycopg.Connection, series: Series, now: datetime) -> timedelta | None:
    """For how long there are partitions from now on; None where there is none."""
    row = database.execute(_LAST_PART, {"table": series.table, "default": series.default}).fetchone()
    if row is None or row[0] is None:
        return None
    return series.bounds(series.start(row[0]))[1] - now


def _brokered() -> Brokered | None:
    try:
        queues = {queue: queued(queue) for queue in QUEUES}
        in_flight = read_levels().get(metrics.IN_FLIGHT.name, 0)
        return Brokered(queues, int(in_flight), _workers())
    except (
        redis.RedisError,
        KombuError,
        OSError,
        ValueError,
    ) as error:  # ValueError: a reply that is not JSON
        logger.warning("the health page shows nothing of the broker: %s", error)
        return None


class _Queue(msgspec.Struct):
    name: str


def _workers() -> dict[str, list[str]]:
    """Return the queues of the workers that answer, by worker. Waits until all did, for at most WORKERS_SEC."""
    there = _listening()
    if not there:
        return {}
    replies = celery_app.control.broadcast("active_queues", reply=True, timeout=WORKERS_SEC, limit=there)
    found = {
        name: queues
        for reply in replies or []
        for name, queues in msgspec.convert(reply, dict[str, list[_Queue]]).items()
    }
    return {name: [queue.name for queue in queues] for name, queues in sorted(found.items())}


def _listening() -> int:
    """Workers that hear what is said to all of them: whoever has subscribed to something in the broker's database."""
    with redis.Redis.from_url(
        settings.REDIS_URL or "", socket_connect_timeout=PATIENCE_SEC, socket_timeout=PATIENCE_SEC
    ) as broker:
        database = str(broker.get_connection_kwargs().get("db", 0))
        clients = broker.client_list(_type="pubsub")
    return sum(client["db"] == database and client["psub"] != "0" for client in clients)
