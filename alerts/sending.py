"""Messages on their way: who sends which, and what is written of each try. Each function is one transaction.

A try is claimed, made, and finished. A sender that dies in between leaves a lease, and when it ends the message is
tried again, under the same key: it arrives at least once, and a receiver that minds can tell the repetition.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import F, Q

from alerts.events import Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from incidents.models import Incident, IncidentEvent
from incidents.timeline import bulk_note, event
from monitors.models import Monitor
from projects import access
from projects.access import Caller

LEASE = timedelta(seconds=45)
"""Longer than any transport may take."""
FIRST_RETRY = timedelta(seconds=10)
LONGEST_RETRY = timedelta(hours=1)
JITTER = 0.2
KEPT = timedelta(days=90)
MOST_OF_OWNER = 6
"""Messages of one account under way at once: all of its receivers may hang, and those of others do not wait."""

State = Delivery.State
Type = IncidentEvent.Type

# A message waits for earlier ones of its channel about the same monitor, as long as those are open: no recovery
# overtakes its own outage, nor what comes after it.
BEHIND_AN_EARLIER = """
    EXISTS (
        SELECT
          FROM alerts_deliveryitem AS item
          JOIN incidents_incident AS incident ON incident.id = item.incident_id
          JOIN incidents_incident AS same
            ON same.id = incident.id OR same.monitor_id = incident.monitor_id
          JOIN alerts_deliveryitem AS told ON told.incident_id = same.id
          JOIN alerts_delivery AS earlier ON earlier.id = told.delivery_id
         WHERE item.delivery_id = candidate.id
           AND told.channel_id = candidate.channel_id
           AND earlier.id < candidate.id
           AND earlier.state IN ('gathering', 'waiting')
    )
"""
# Of a channel one at a time, so that a slow one costs one sender, and of an account a few. Healthy channels first.
# Chosen in a WITH, which is run once: a subquery may be run for each row that it is joined to, and then skips the row
# that this statement has just updated, and chooses another.
_CLAIM = """
    WITH chosen AS (
        SELECT candidate.id
          FROM alerts_delivery AS candidate
          JOIN alerts_alertchannel AS channel ON channel.id = candidate.channel_id
         WHERE candidate.state IN ('gathering', 'waiting')
           AND candidate.next_try_at <= %(now)s
           AND (candidate.leased_until IS NULL OR candidate.leased_until <= %(now)s)
           AND (channel.failures = 0 OR NOT %(healthy_only)s)
           AND NOT EXISTS (
                SELECT
                  FROM alerts_delivery AS other
                 WHERE other.channel_id = candidate.channel_id
                   AND other.state = 'waiting'
                   AND other.leased_until > %(now)s
           )
           AND %(most_of_owner)s > (
                SELECT count(*)
                  FROM alerts_delivery AS other
                  JOIN alerts_alertchannel AS theirs ON theirs.id = other.channel_id
                 WHERE theirs.owner_id = channel.owner_id
                   AND other.state = 'waiting'
                   AND other.leased_until > %(now)s
           )
           AND NOT {behind_an_earlier}
         ORDER BY channel.failures > 0, candidate.id
         LIMIT 1
           FOR UPDATE OF candidate SKIP LOCKED
    )
    UPDATE alerts_delivery AS delivery
       SET state = 'waiting', leased_until = %(lease_end)s, attempts = delivery.attempts + 1
      FROM chosen
     WHERE delivery.id = chosen.id
    RETURNING delivery.id, delivery.public_id, delivery.attempts, delivery.give_up_at, delivery.channel_id
"""


@dataclass(frozen=True, slots=True)
class Try:
    """The right to send a message once, until its lease ends."""

    delivery_id: int
    key: str
    number: int
    give_up_at: datetime
    channel_id: int


def claim(now: datetime, *, healthy_only: bool = False) -> Try | None:
    """The next message that is due; None where there is none for now. Committed when this returns."""
    with connection.cursor() as cursor:
        cursor.execute(
            _CLAIM.format(behind_an_earlier=BEHIND_AN_EARLIER),
            {
                "now": now,
                "lease_end": now + LEASE,
                "healthy_only": healthy_only,
                "most_of_owner": MOST_OF_OWNER,
            },
        )
        row = cursor.fetchone()
    return None if row is None else Try(*row)


def due(now: datetime, *, most: int) -> int:
    """How many messages wait to be sent; counting ends at `most`."""
    waiting = Delivery.objects.filter(
        Q(leased_until=None) | Q(leased_until__lte=now),
        state__in=[State.GATHERING, State.WAITING],
        next_try_at__lte=now,
    )
    return waiting[:most].count()


def load(claimed: Try) -> tuple[AlertChannel | None, list[Payload]]:
    """Return the channel and the items of a claimed message. No channel: it was deleted or must not be used any more.

    Routes were evaluated when the items were written. For a personal channel, delete items that its owner can no longer
    read, and the message if none is left: a former member of a project gets no queued news of it.
    """
    usable = AlertChannel.objects.filter(enabled=True, confirmed_at__isnull=False, owner__is_active=True)
    channel = usable.select_related("owner").filter(pk=claimed.channel_id).first()
    items = list(DeliveryItem.objects.filter(delivery=claimed.delivery_id).order_by("pk"))
    if channel is not None and channel.project_id is None:
        foreign = _foreign(items, Caller(channel.owner))
        items = [item for item in items if item.pk not in foreign]
        if foreign:
            DeliveryItem.objects.filter(pk__in=foreign).delete()
        if foreign and not items:
            Delivery.objects.filter(pk=claimed.delivery_id, attempts=claimed.number).delete()
            channel = None
    return channel, [Payload.from_json(item.payload) for item in items]


def _foreign(items: Sequence[DeliveryItem], owner: Caller) -> set[int]:
    """Return the keys of items whose incident (or monitor, if there is no incident) the owner cannot read."""
    of_incident = {item.pk: item.incident_id for item in items if item.incident_id is not None}
    of_monitor = {item.pk: item.payload["monitor_id"] for item in items if item.incident_id is None}
    incidents = access.accessible(owner, Incident.objects.filter(pk__in=of_incident.values()))
    monitors = access.accessible(
        owner, Monitor.objects.filter(public_id__in=filter(None, of_monitor.values()))
    )
    readable = {None, *incidents.values_list("pk", flat=True), *monitors.values_list("public_id", flat=True)}
    return {pk for pk, what in (of_incident | of_monitor).items() if what not in readable}


def finish(
    claimed: Try, *, delivered: bool, detail: str, retry: bool, now: datetime
) -> Delivery.State | None:
    """What came of a try: sent, waiting for the next one, or dead; None where it was claimed by somebody else since."""
    with transaction.atomic():
        channel = AlertChannel.objects.filter(pk=claimed.channel_id)
        # The channel before its deliveries, as whoever deletes it holds them.
        if not channel.select_for_update(no_key=True).exists():
            return None
        held = Delivery.objects.select_for_update().filter(
            pk=claimed.delivery_id, attempts=claimed.number, state=State.WAITING
        )
        delivery = held.first()
        if delivery is None:
            return None
        delivery.leased_until = None
        delivery.last_error = None if delivered else detail
        if delivered:
            delivery.state, delivery.done_at = State.SENT, now
        elif not retry or now >= claimed.give_up_at:
            delivery.state, delivery.done_at = State.DEAD, now
        else:
            delivery.next_try_at = now + backoff(claimed.number)
        delivery.save(update_fields=["state", "leased_until", "last_error", "done_at", "next_try_at"])
        if delivered:
            channel.update(failures=0, last_sent_at=now)
        else:
            channel.update(failures=F("failures") + 1)
        _note(delivery, claimed, detail, now)
    return State(delivery.state)


def log_test(
    channel_id: int, payload: Payload, *, key: str, delivered: bool, detail: str, now: datetime
) -> None:
    """Add a test to the channel's log, unless the channel is gone. It is over: nothing claims or replays it."""
    with transaction.atomic():
        if not AlertChannel.objects.select_for_update(no_key=True).filter(pk=channel_id).exists():
            return
        delivery = Delivery.objects.create(
            public_id=key,
            channel_id=channel_id,
            created_at=now,
            state=State.SENT if delivered else State.FAILED,
            next_try_at=now,
            give_up_at=now,
            attempts=1,
            last_error=None if delivered else detail,
            done_at=now,
        )
        DeliveryItem.objects.create(
            delivery=delivery,
            channel_id=channel_id,
            source=f"test:{key}",
            payload=payload.as_json(),
            at=now,
        )


def backoff(attempts: int) -> timedelta:
    """How long to wait after so many failed tries: doubling, and spread, so that no crowd comes back at once."""
    wait = min(FIRST_RETRY * int(2 ** min(attempts - 1, 20)), LONGEST_RETRY)
    return wait * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - nobody gains by guessing it


def delete_old(now: datetime) -> int:
    """Forget what was done with long ago; incidents and their timelines stay."""
    done = Delivery.objects.filter(state__in=[State.SENT, State.DEAD, State.FAILED], done_at__lt=now - KEPT)
    deleted, _ = done.delete()
    return deleted


def _note(delivery: Delivery, claimed: Try, detail: str, now: datetime) -> None:
    """Into the timeline of each incident that it tells of: that it arrived, that it fails, that it was given up."""
    if delivery.state == State.WAITING and claimed.number > 1:
        return  # said once, and again when it is over: tries in between are told by the delivery itself
    channel = AlertChannel.objects.get(pk=delivery.channel_id)
    state = State(delivery.state)
    texts = {
        State.SENT: f"An alert was taken by {channel}.",
        State.WAITING: f"An alert to {channel} failed and will be tried again: {detail}",
        State.DEAD: f"An alert to {channel} was given up after {claimed.number} tries: {detail}",
    }
    told = Incident.objects.filter(delivery_items__delivery=delivery).distinct().order_by("pk").only("pk")
    bulk_note(
        event(
            incident,
            Type.ALERT_SENT if state is State.SENT else Type.ALERT_FAILED,
            texts[state],
            at=now,
            data={"delivery_id": delivery.public_id, "channel_id": channel.public_id},
        )
        for incident in told
    )
