"""How long alerts that could be sent have waited."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg

from alerts.sending import BEHIND_AN_EARLIER

MOST_QUEUED = 60
"""Messages in queue `alerts`. Beat adds one each second; beyond that, no process takes them."""
MOST_LAG = timedelta(seconds=60)

# What a receiver causes is not late: a message in back-off, for a failing channel, behind an earlier one of its
# channel, or of an account that is being sent others. A healthy channel takes one message at a time, so the next one
# could go out since the last was sent. A lease that ended unfinished counts from its end. Only the first message of
# each channel is looked at, so that a storm costs little.
_OLDEST = """
    WITH candidate AS MATERIALIZED (
        SELECT DISTINCT ON (delivery.channel_id)
               delivery.id,
               delivery.channel_id,
               greatest(delivery.next_try_at, delivery.leased_until, channel.last_sent_at) AS since
          FROM alerts_delivery AS delivery
          JOIN alerts_alertchannel AS channel ON channel.id = delivery.channel_id
         WHERE delivery.state IN ('gathering', 'waiting')
           AND delivery.next_try_at <= %(now)s
           AND (delivery.leased_until IS NULL OR delivery.leased_until <= %(now)s)
           AND channel.failures = 0
           AND channel.owner_id NOT IN (
                SELECT served.owner_id
                  FROM alerts_delivery AS sending
                  JOIN alerts_alertchannel AS served ON served.id = sending.channel_id
                 WHERE sending.state = 'waiting'
                   AND sending.leased_until > %(now)s
           )
         ORDER BY delivery.channel_id, delivery.id
    )
    SELECT least(
        (SELECT min(at) FROM monitors_statuschange WHERE processed_at IS NULL),
        (SELECT min(since) FROM candidate WHERE NOT {behind_an_earlier})
    )
"""


def oldest_alert(database: psycopg.Connection, *, now: datetime) -> datetime | None:
    """Return since when the oldest status change or message waits, or None if none does. Raises psycopg.Error."""
    statement = _OLDEST.format(behind_an_earlier=BEHIND_AN_EARLIER)
    row = database.execute(statement, {"now": now}).fetchone()
    assert row is not None
    found: datetime | None = row[0]
    return found
