"""EventType becomes messages: rows, written in the transaction of what they tell of, and sent afterwards.

Storms: where more comes to one channel than a person can read, what follows is gathered into one message with a list.
It is held until nothing new has come for QUIET, but no longer than MOST_HOLD. A service that opens one alert for each
incident and groups them itself gets each piece of news as a message of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count

from alerts.events import EventType, Payload
from alerts.models import Delivery, DeliveryItem
from alerts.transports import KINDS
from incidents.models import Incident

STORM_SIZE = 2
"""Messages that one channel gets one by one within STORM_WINDOW."""
STORM_WINDOW = timedelta(seconds=60)
QUIET = timedelta(seconds=10)
MOST_HOLD = timedelta(seconds=60)
TRIED_FOR = timedelta(hours=24)

State = Delivery.State


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One piece of news and the channels it goes to. `source` names it for ever: no channel is told of it twice."""

    source: str
    payload: Payload
    channel_ids: Iterable[int]
    incident: Incident | None = None


def put(pieces: Sequence[OutboxItem], *, now: datetime) -> None:
    """Inside the transaction that makes the news, and under its lock: nobody else adds messages meanwhile."""
    by_channel: dict[int, list[OutboxItem]] = defaultdict(list)
    for piece in pieces:
        for channel_id in piece.channel_ids:
            by_channel[channel_id].append(piece)
    kinds = _hold_channels(by_channel)
    for gone in by_channel.keys() - kinds.keys():
        del by_channel[gone]
    if not by_channel:
        return
    gathering = {
        delivery.channel_id: delivery
        for delivery in Delivery.objects.select_for_update()
        .filter(channel__in=by_channel, state=State.GATHERING)
        .order_by("pk")
    }
    recent = dict(
        Delivery.objects.filter(channel__in=by_channel, created_at__gt=now - STORM_WINDOW)
        .exclude(items__payload__event_type=EventType.TEST)
        .values_list("channel")
        .annotate(Count("pk"))
    )
    made: list[Delivery] = []
    items: list[DeliveryItem] = []
    for channel_id, told in by_channel.items():
        delivery = gathering.get(channel_id)
        if delivery is not None:
            delivery.next_try_at = min(delivery.created_at + MOST_HOLD, now + QUIET)
            groups = [(delivery, told)]
        elif (
            recent.get(channel_id, 0) + len(told) > STORM_SIZE and not KINDS[kinds[channel_id]].one_alert_each
        ):
            groups = [(_message(channel_id, State.GATHERING, now, after=QUIET), told)]
        else:
            groups = [(_message(channel_id, State.WAITING, now), [piece]) for piece in told]
        for message, pieces_of in groups:
            if message is not delivery:
                made.append(message)
            items += [_item(message, piece, now) for piece in pieces_of]
    Delivery.objects.bulk_update(gathering.values(), ["next_try_at"])
    Delivery.objects.bulk_create(made)
    DeliveryItem.objects.bulk_create(items)


def _hold_channels(channel_ids: Collection[int]) -> dict[int, str]:
    """Lock the channels that still exist until the transaction ends, and return their kinds. Senders do not wait."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, kind FROM alerts_alertchannel WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE",
            [list(channel_ids)],
        )
        return dict(cursor.fetchall())


def _message(
    channel_id: int, state: Delivery.State, now: datetime, *, after: timedelta = timedelta()
) -> Delivery:
    return Delivery(
        channel_id=channel_id,
        created_at=now,
        state=state,
        next_try_at=now + after,
        give_up_at=now + after + TRIED_FOR,
    )


def _item(delivery: Delivery, piece: OutboxItem, now: datetime) -> DeliveryItem:
    return DeliveryItem(
        delivery=delivery,
        channel_id=delivery.channel_id,
        source=piece.source,
        incident=piece.incident,
        payload=piece.payload.as_json(),
        at=now,
    )
