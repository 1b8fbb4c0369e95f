"""Which message is sent next: turns of accounts, and the order of messages about one monitor.

Accounts take turns, the one with the fewest messages in flight first, then the one that was served least recently. So
the number of messages, channels or failures of an account delays only its own messages.

A message that must not overtake an earlier one of its channel about the same monitor names it in `behind`, so that a
claim finds in an index what can be sent, however many messages wait. `behind` only changes while the channel is locked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.db import connection

_OPEN = "state IN ('gathering', 'waiting')"
READY = "state NOT IN ('sent', 'dead', 'failed') AND behind = '{}'"
"""The condition of the index of turns."""
_DUE = f"""
    {READY}
    AND candidate.next_try_at <= %(now)s
    AND (candidate.leased_until IS NULL OR candidate.leased_until <= %(now)s)
"""

# The walk finds the accounts in the index, one probe each: a scan would read every message. It starts anywhere and goes
# round, so that with more accounts than it may visit chance decides. `candidate` is evaluated lazily, account by
# account, until a row can be locked. One message at a time per channel, so that a slow one occupies one sender.
CHOSEN = f"""
    sending AS MATERIALIZED (
        SELECT delivery.account, delivery.channel_id, channel.kind = 'email' AS by_mail
          FROM alerts_delivery AS delivery
          JOIN alerts_alertchannel AS channel ON channel.id = delivery.channel_id
         WHERE delivery.state = 'waiting'
           AND delivery.leased_until > %(now)s
    ), walk AS (
        SELECT start.account, start.account AS first, 1 AS steps
          FROM (SELECT coalesce(
                    (SELECT account FROM alerts_delivery
                      WHERE {READY}
                        AND account >= (SELECT (max(account) * %(start)s)::bigint FROM alerts_delivery WHERE {READY})
                      ORDER BY account LIMIT 1),
                    (SELECT min(account) FROM alerts_delivery WHERE {READY})
                ) AS account) AS start
         WHERE start.account IS NOT NULL
         UNION ALL
        SELECT next.account, walk.first, walk.steps + 1
          FROM walk
         CROSS JOIN LATERAL (SELECT coalesce(
                    (SELECT account FROM alerts_delivery
                      WHERE {READY} AND account > walk.account ORDER BY account LIMIT 1),
                    (SELECT min(account) FROM alerts_delivery WHERE {READY})
                ) AS account) AS next
         WHERE next.account <> walk.first
           AND walk.steps < %(max_accounts)s
    ), turn AS MATERIALIZED (
        SELECT walk.account
          FROM walk
          LEFT JOIN (SELECT account, count(*) AS messages FROM sending GROUP BY account) AS busy USING (account)
         CROSS JOIN LATERAL (
                SELECT next_try_at FROM alerts_delivery
                 WHERE {READY} AND account = walk.account ORDER BY next_try_at LIMIT 1
               ) AS earliest
         CROSS JOIN LATERAL (
                SELECT max(last_tried_at) AS at FROM alerts_alertchannel WHERE owner_id = walk.account
               ) AS served
         WHERE coalesce(busy.messages, 0) < %(max_per_owner)s
           AND earliest.next_try_at <= %(now)s
         ORDER BY coalesce(busy.messages, 0), served.at NULLS FIRST, earliest.next_try_at
    ), candidate AS (
        SELECT best.id
          FROM turn
         CROSS JOIN LATERAL (
                SELECT due.id
                  FROM (SELECT candidate.id, candidate.channel_id, candidate.next_try_at
                          FROM alerts_delivery AS candidate
                         WHERE candidate.account = turn.account
                           AND {_DUE}
                           AND NOT EXISTS (SELECT FROM sending WHERE sending.channel_id = candidate.channel_id)
                         ORDER BY candidate.next_try_at
                         LIMIT %(max_of_account)s
                       ) AS due
                  JOIN alerts_alertchannel AS channel ON channel.id = due.channel_id
                 WHERE (channel.prompt OR NOT %(prompt_only)s)
                   AND (channel.kind <> 'email' OR (SELECT count(*) FROM sending WHERE by_mail)
                        < CASE WHEN channel.prompt THEN %(max_mails)s ELSE %(max_mails)s / 2 END)
                 ORDER BY channel.failures > 0, due.next_try_at, due.id
                 LIMIT 4
               ) AS best
    ), chosen AS (
        SELECT locked.id
          FROM candidate AS found
         CROSS JOIN LATERAL (
                SELECT candidate.id FROM alerts_delivery AS candidate
                 WHERE candidate.id = found.id AND {_DUE} FOR UPDATE SKIP LOCKED
               ) AS locked
         LIMIT 1
    )
"""  # noqa: S608 - only constants

# The latest earlier message is enough: it waits for those before it.
_QUEUE = """
    UPDATE alerts_delivery AS message
       SET behind = found.behind
      FROM (
            SELECT item.delivery_id, array_agg(DISTINCT earlier.id) AS behind
              FROM alerts_deliveryitem AS item
             CROSS JOIN LATERAL (
                    SELECT before.delivery_id
                      FROM alerts_deliveryitem AS before
                     WHERE before.channel_id = item.channel_id
                       AND before.payload ->> 'monitor_id' = item.payload ->> 'monitor_id'
                       AND before.incident_id IS NOT NULL
                       AND before.id < item.id
                       AND before.delivery_id <> item.delivery_id
                     ORDER BY before.id DESC
                     LIMIT 1
                   ) AS before
              JOIN alerts_delivery AS earlier ON earlier.id = before.delivery_id
             WHERE item.delivery_id = ANY(%(ids)s)
               AND item.incident_id IS NOT NULL
               AND earlier.state IN ('gathering', 'waiting')
             GROUP BY item.delivery_id
           ) AS found
     WHERE message.id = found.delivery_id
"""
_FOLLOW = """
    UPDATE alerts_delivery AS message
       SET behind = message.behind || found.behind
      FROM (
            SELECT wanted.delivery, array_agg(DISTINCT earlier.id) AS behind
              FROM unnest(%(deliveries)s::bigint[], %(channels)s::bigint[], %(sources)s::text[])
                       AS wanted (delivery, channel, source)
              JOIN alerts_deliveryitem AS item ON item.channel_id = wanted.channel AND item.source = wanted.source
              JOIN alerts_delivery AS earlier ON earlier.id = item.delivery_id
             WHERE earlier.id <> wanted.delivery
               AND earlier.state IN ('gathering', 'waiting')
             GROUP BY wanted.delivery
           ) AS found
     WHERE message.id = found.delivery
"""
_QUEUE_BEHIND = """
    UPDATE alerts_delivery AS message
       SET behind = array_append(message.behind, revived.id)
      FROM unnest(%(ids)s::bigint[]) AS revived (id)
     WHERE message.id > revived.id
       AND message.state IN ('gathering', 'waiting')
       AND revived.id <> ALL(message.behind)
       AND EXISTS (
            SELECT
              FROM alerts_deliveryitem AS item
              JOIN alerts_deliveryitem AS later
                ON later.channel_id = item.channel_id
               AND later.payload ->> 'monitor_id' = item.payload ->> 'monitor_id'
             WHERE item.delivery_id = revived.id
               AND later.delivery_id = message.id
               AND item.incident_id IS NOT NULL
               AND later.incident_id IS NOT NULL)
       AND message.channel_id IN (SELECT channel_id FROM alerts_delivery WHERE id = revived.id)
"""
_RELEASE = f"""
    UPDATE alerts_delivery
       SET behind = array_remove(behind, %(id)s::bigint)
     WHERE channel_id = %(channel)s AND {_OPEN} AND behind <> '{{}}' AND %(id)s = ANY(behind)
"""  # noqa: S608


def queue(ids: Collection[int]) -> None:
    """Put these messages behind earlier open ones of their channels about the same monitors."""
    if ids:
        _execute(_QUEUE, ids=list(ids))


def follow(items: Sequence[tuple[int, int, str]]) -> None:
    """Put messages behind the open one with the item of that source: (message, channel, source) of each item."""
    if items:
        deliveries, channels, sources = map(list, zip(*items, strict=True))
        _execute(_FOLLOW, deliveries=deliveries, channels=channels, sources=sources)


def queue_behind(ids: Collection[int]) -> None:
    """Put later messages behind these, which are open again."""
    for each in sorted(ids):
        _execute(_QUEUE_BEHIND, ids=[each])


def release(channel_id: int, done: int) -> None:
    """Let the messages of a channel go that waited for one that is done."""
    _execute(_RELEASE, channel=channel_id, id=done)


def _execute(statement: str, **parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
