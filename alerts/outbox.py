"""Alerts as messages of the outbox: items are written in the transaction of their event, and sent afterwards.

In a storm, further items for a channel are gathered into one message with a list. It waits until no item has come for
QUIET, but no longer than MAX_WAIT. Services with one alert per incident get one message per item.
"""

from __future__ import annotations

import logging
from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import NamedTuple

import msgspec
import psycopg
from django.conf import settings
from django.db import transaction
from django.db.models import Count, F

from accounts.models import User
from alerts import messages, templates, turns
from alerts.events import DOWN, EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.planning import ESCALATED, PlanNote, is_escalated, lock_channels, settle, write_notes
from alerts.transports import KINDS
from alerts.turns import READY
from core import ids
from core.bulk import BulkResult, insert_objects
from core.clock import utc_now
from core.db import lock_against_deletion, release_connection
from core.metrics import ALERT_SEC, LATE, Counter, Labels, Level
from core.text import counted
from incidents.models import Escalation, Incident, IncidentEvent
from locations.models import Location
from monitors.models import Monitor
from monitors.selectors import hidden_ids
from notifications.outbox import DUE, OUTCOMES, RETRY_FOR, Lane, Outbox, SendResult
from projects import access
from projects.access import Caller

logger = logging.getLogger(__name__)

DELIVERIES = Counter(
    "pulsekeeper_deliveries_total",
    "Attempts to send an alert: `sent`, `waiting` for a retry, `dead` (given up), `overtaken` by a later attempt.",
    ("outcome", "kind"),
    list(product(OUTCOMES, KINDS)),
)

SENDERS_BUSY = Level("pulsekeeper_senders_busy", "Threads that send an alert, or look for one, at most 160 a process.")

STORM_SIZE = 2
"""Messages per channel within STORM_WINDOW that are sent one by one."""
STORM_WINDOW = timedelta(seconds=60)
QUIET = timedelta(seconds=10)
MAX_WAIT = timedelta(seconds=60)
KEPT = timedelta(days=90)
MAX_PER_OWNER = 6
"""Concurrent messages of one account: if all its receivers hang, other accounts do not wait."""
MAX_MAILS = 32
"""Concurrent e-mails: they share one mail server. Half of them are for channels that were prompt before."""
PROMPT = timedelta(seconds=3)
"""A channel that takes longer may hang next time."""

_LIMITS = {"max_mails": MAX_MAILS, "max_accounts": 1_000, "max_of_account": 500}
FEW_ACCOUNTS = 100
"""How many accounts a claim visits at first. With 400 that have messages, visiting all took 20 ms of CPU."""
PROVEN = Lane(16, {**_LIMITS, "prompt_only": True, "max_per_owner": 2})
"""Threads for channels that were prompt the last time; new, slow and failing channels cannot occupy them."""
FIRST = Lane(112, {**_LIMITS, "prompt_only": False, "max_per_owner": 1})
"""Threads for accounts that have no message in flight. They wait and do not compute, so a large number is cheap."""
FURTHER = Lane(32, {**_LIMITS, "prompt_only": False, "max_per_owner": MAX_PER_OWNER})

MAX_QUEUED = 60
"""Messages in queue `alerts`. Beat adds one each second: with more, no process consumes them."""
MAX_LAG = timedelta(seconds=60)

State = Delivery.State
Type = IncidentEvent.Type

# Delays that a receiver causes do not count: a message in back-off, for a failing channel, behind an earlier one of its
# channel, or of an account with messages being sent. A healthy channel takes one message at a time, so the next one
# could be sent since the last was. An expired lease counts from its end.
_OLDEST = f"""
    SELECT least(
        (SELECT min(at) FROM monitors_statuschange WHERE processed_at IS NULL),
        (SELECT min(due_at) FROM alerts_deliveryitem WHERE delivery_id IS NULL AND due_at <= %(now)s),
        (SELECT min(next_at) FROM incidents_escalation WHERE next_at <= %(now)s),
        (SELECT min(greatest(confirmed_at, look_again_at)) FROM incidents_incident
          WHERE resolved_at IS NULL AND announced_at IS NULL AND confirmed_at IS NOT NULL
            AND (look_again_at IS NULL OR look_again_at <= %(now)s)),
        (SELECT min(greatest(resolved_at, look_again_at)) FROM incidents_incident
          WHERE resolved_at IS NOT NULL AND announced_at IS NOT NULL AND closing_announced_at IS NULL
            AND (look_again_at IS NULL OR look_again_at <= %(now)s)),
        (SELECT min(greatest(candidate.next_try_at, candidate.leased_until, channel.last_sent_at))
           FROM alerts_delivery AS candidate
           JOIN alerts_alertchannel AS channel ON channel.id = candidate.channel_id
          WHERE {DUE}
            AND {READY}
            AND channel.failures = 0
            AND channel.owner_id NOT IN (
                 SELECT served.owner_id
                   FROM alerts_delivery AS sending
                   JOIN alerts_alertchannel AS served ON served.id = sending.channel_id
                  WHERE sending.state = 'waiting'
                    AND sending.leased_until > %(now)s))
    )
"""  # noqa: S608 - only constants


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """An event for some channels. `source` identifies it: no channel gets it twice.

    Items of an incident are sent in their order. One without an incident may name the item that it follows: `after`.
    It is due at `due_at`, by default now. `user_id` is the key of the person whom it notifies.
    """

    source: str
    payload: Payload
    channel_ids: Collection[int]
    incident: Incident | None = None
    after: str | None = None
    due_at: datetime | None = None
    user_id: int | None = None


class Written(NamedTuple):
    """What `put` wrote: to how many channels each source is sent now, and what timelines say of other channels."""

    sent: Counted[str]
    notes: list[PlanNote]


def put(items: Sequence[OutboxItem], *, now: datetime) -> Written:
    """Write the messages of these items. Call it once, in the transaction of the events and after their other locks.

    Items that are due later, also because of a channel's delay or hours, are planned.
    """
    by_channel: dict[int, list[OutboxItem]] = defaultdict(list)
    for item in items:
        for channel_id in item.channel_ids:
            by_channel[channel_id].append(item)
    channels = lock_channels(by_channel)
    if not channels:
        return Written(Counted(), [])
    payloads = {item.source: msgspec.to_builtins(item.payload) for item in items}
    after = {item.source: item.after for item in items if item.after is not None}
    rows = [
        DeliveryItem(
            channel_id=channel_id,
            source=item.source,
            incident=item.incident,
            payload=payloads[item.source],
            at=now,
            due_at=item.due_at,
            user_id=item.user_id,
        )
        for channel_id in channels
        for item in by_channel[channel_id]
    ]
    rows, notes = settle(rows, channels, after=after, now=now)
    write(rows, channels, now=now)
    turns.follow(
        [
            (row.delivery_id, row.channel_id, after[row.source])
            for row in rows
            if row.source in after and row.delivery_id is not None
        ]
    )
    return Written(Counted(row.source for row in rows if row.delivery_id is not None), notes)


def write(rows: Sequence[DeliveryItem], channels: Mapping[int, AlertChannel], *, now: datetime) -> None:
    """Store new items of these locked channels in their order. Those that are not due later get a message."""
    by_channel: dict[int, list[DeliveryItem]] = defaultdict(list)
    for row in rows:
        if row.due_at is None or row.due_at <= now:
            by_channel[row.channel_id].append(row)
    groups = Delivery.objects.select_for_update().filter(channel__in=by_channel, state=State.GATHERING).order_by("pk")
    gathering = {group.channel_id: group for group in groups}
    people = lock_against_deletion(User, {row.user_id for row in rows if row.user_id is not None})
    for row in rows:
        row.user_id = row.user_id if row.user_id in people else None
    recent = dict(
        Delivery.objects.filter(channel__in=by_channel, created_at__gt=now - STORM_WINDOW)
        .exclude(items__payload__event_type=EventType.TEST)
        .values_list("channel")
        .annotate(Count("pk"))
    )
    created: list[Delivery] = []
    new_ids = ids.delivery_ids(sum(map(len, by_channel.values())))
    for channel_id, own in by_channel.items():
        channel, group = channels[channel_id], gathering.get(channel_id)
        if group is not None:
            group.next_try_at = min(group.created_at + MAX_WAIT, now + QUIET)
        elif recent.get(channel_id, 0) + len(own) > STORM_SIZE and not KINDS[channel.kind].one_alert_each:
            group = _delivery(next(new_ids), channel, State.GATHERING, now, after=QUIET)
            created.append(group)
        for row in own:
            if group is None:
                created.append(_delivery(next(new_ids), channel, State.WAITING, now))
            row.delivery = group or created[-1]
    Delivery.objects.bulk_update(gathering.values(), ["next_try_at"])
    Delivery.objects.bulk_create(created)
    insert_objects(rows)
    turns.queue({row.delivery_id for row in rows if row.incident_id is not None and row.delivery_id is not None})


def _delivery(
    public_id: str,
    channel: AlertChannel,
    state: Delivery.State,
    now: datetime,
    *,
    after: timedelta = timedelta(),
) -> Delivery:
    at = now + after
    return Delivery(
        public_id=public_id,
        channel_id=channel.pk,
        account=channel.owner_id,
        created_at=now,
        state=state,
        next_try_at=at,
        give_up_at=at + RETRY_FOR,
    )


class DeliveryOutbox(Outbox[Delivery]):
    model = Delivery
    chosen = turns.CHOSEN
    lease = timedelta(seconds=45)
    lanes = (PROVEN, FIRST, FURTHER)
    level = SENDERS_BUSY
    counter = DELIVERIES

    def claim(self, now: datetime, lane: Lane | None = None) -> list[Delivery]:
        lane = lane or self.lanes[-1]
        few = replace(lane, limits=lane.limits | {"max_accounts": FEW_ACCOUNTS})
        return super().claim(now, few) or super().claim(now, lane)

    def attempt(self, claimed: Sequence[Delivery]) -> Iterator[tuple[Delivery, SendResult]]:
        for delivery in claimed:
            self._count_if_late(delivery)
            try:
                channel, items = load(delivery)
            except msgspec.ValidationError:
                logger.exception("the stored alert %s cannot be read", delivery.public_id)
                result = SendResult(delivered=False, detail="The stored alert cannot be read.", retry=True)
            else:
                release_connection()
                if channel is None:
                    result = SendResult(delivered=False, detail="The channel is disabled.", retry=False)
                else:
                    result = _send(channel, items, delivery.public_id)
            yield delivery, result

    def _count_if_late(self, claimed: Delivery) -> None:
        """Count a late first attempt, unless an attempt for another message of its account ended while it waited."""
        if claimed.attempts > 1 or claimed.leased_until is None:
            return
        latest_start = claimed.leased_until - self.lease - timedelta(seconds=ALERT_SEC)
        if claimed.next_try_at < latest_start:
            served = AlertChannel.objects.filter(owner=claimed.account, last_tried_at__gte=latest_start)
            LATE.add(not served.exists(), "alerts")

    def lock_receiver(self, message: Delivery) -> bool:
        """Lock the channel before its delivery, in the order of its deletion."""
        return AlertChannel.objects.select_for_update(no_key=True).filter(pk=message.channel_id).exists()

    def labels(self, message: Delivery) -> Labels | None:
        return AlertChannel.objects.filter(pk=message.channel_id).values_list("kind").first()

    def finished(self, message: Delivery, state: Delivery.State, result: SendResult, now: datetime) -> None:
        """Update the channel's health, and the timelines of the incidents: first failure, success, giving up."""
        channels = AlertChannel.objects.filter(pk=message.channel_id)
        if result.delivered:
            is_prompt = message.leased_until is None or now + self.lease - message.leased_until < PROMPT
            channels.update(failures=0, last_sent_at=now, last_tried_at=now, prompt=is_prompt)
        else:
            channels.update(failures=F("failures") + 1, last_tried_at=now, prompt=False)
        if state != State.WAITING:
            turns.release(message.channel_id, message.pk)
        if state == State.WAITING and message.attempts > 1:
            return
        channel = channels.get()
        attempts = counted(message.attempts, "attempt")
        texts = {
            State.SENT: f"Alert delivered to {channel}.",
            State.WAITING: f"Alert to {channel} failed and will be retried: {result.detail}",
            State.DEAD: f"Alert to {channel} was given up after {attempts}: {result.detail}",
        }
        incidents = Incident.objects.filter(delivery_items__delivery=message).distinct().order_by("pk")
        insert_objects(
            IncidentEvent(
                incident_id=incident_id,
                type=Type.ALERT_SENT if state is State.SENT else Type.ALERT_FAILED,
                text=texts[state],
                at=now,
                data={"delivery_id": message.public_id, "channel_id": channel.public_id},
            )
            for incident_id in incidents.values_list("pk", flat=True)
        )

    def replay(self, ids: Collection[int], *, now: datetime) -> BulkResult[Delivery]:
        with transaction.atomic():
            channels = AlertChannel.objects.select_for_update(no_key=True, of=["self"])
            list(channels.filter(deliveries__in=ids).order_by("pk"))
            result = super().replay(ids, now=now)
            turns.queue_behind([delivery.pk for delivery in result.done])
        return result


acknowledge_urls: list[Callable[[Sequence[DeliveryItem]], Mapping[int, str]]] = []
"""Return URLs with which the persons of these items acknowledge their incidents, by key of the item. Filled by
`oncall`."""


def load(delivery: Delivery) -> tuple[AlertChannel | None, list[Payload]]:
    """Return the channel and the items of a claimed message. The channel is None if it must no longer be used.

    For a personal channel, delete items that its owner can no longer read, and the message if none is left: a former
    member of a project gets no queued alerts of it. A viewer gets no id of a heartbeat, which is a secret. The same
    with items of escalations that are no longer wanted.
    """
    usable = AlertChannel.objects.filter(enabled=True, confirmed_at__isnull=False, owner__is_active=True)
    channel = usable.select_related("owner").filter(pk=delivery.channel_id).first()
    items = list(DeliveryItem.objects.filter(delivery=delivery).order_by("pk"))
    owner = Caller(channel.owner) if channel is not None and channel.project_id is None else None
    if channel is not None:
        unwanted = _unwanted(delivery, items)
        dropped = unwanted.keys() | (_foreign(items, owner) if owner is not None else set())
        if dropped:
            notes = [
                PlanNote(item.source, item.incident_id, channel, reason=unwanted[item.pk])
                for item in items
                if unwanted.get(item.pk)
            ]
            items = [item for item in items if item.pk not in dropped]
            with transaction.atomic():
                if DeliveryItem.objects.filter(pk__in=dropped).delete()[0]:
                    write_notes(notes, now=utc_now())
            if not items:
                _delete(delivery)
                channel = None
    if owner is not None:
        hidden = hidden_ids(owner, {item.payload["monitor_id"] for item in items} - {None})
        for item in items:
            item.payload["monitor_id"] = hidden.get(item.payload["monitor_id"], item.payload["monitor_id"])
    to_people = [item for item in items if item.user_id is not None and item.payload["event_type"] in DOWN]
    if channel is not None and to_people:
        for urls_of in acknowledge_urls:
            urls = urls_of(to_people)
            for item in to_people:
                item.payload["acknowledge_url"] = urls.get(item.pk)
    return channel, [msgspec.convert(item.payload, Payload) for item in items]


def _unwanted(delivery: Delivery, items: Sequence[DeliveryItem]) -> dict[int, str]:
    """Return the keys of items of escalations that are no longer sent, with the reason for timelines.

    These are steps for an incident that is acknowledged or resolved by now, and other news of it if the channel got
    none of its steps. If an earlier attempt may have succeeded, it is made again: the receiver drops repetitions, and
    would otherwise get no recovery.
    """
    of_incidents = {item.incident_id for item in items if item.incident_id is not None}
    columns = ("incident", "run", "incident__acknowledged_at", "incident__resolution")
    found = {pk: row for pk, *row in Escalation.objects.filter(incident__in=of_incidents).values_list(*columns)}
    if not found:
        return {}
    unsent = _is_unsent(delivery)
    dropped: dict[int, str] = {}
    news: dict[int, int] = {}
    for item in items:
        if item.incident_id is None or item.incident_id not in found:
            continue
        run, acknowledged_at, resolution = found[item.incident_id]
        if is_escalated(item):
            is_old = not item.source.startswith(f"{ESCALATED}{item.incident_id}:{run}.")
            if unsent and (acknowledged_at or resolution or is_old):
                dropped[item.pk] = resolution or "acknowledged"
        elif item.payload["event_type"] != EventType.REMINDER:
            news[item.pk] = item.incident_id
    if news:
        done = (State.SENT, State.DEAD)
        sent = DeliveryItem.objects.filter(
            channel=delivery.channel_id, incident__in=news.values(), delivery__state__in=done
        )
        # Steps in this message are sent first.
        kept = {item.incident_id for item in items if is_escalated(item) and item.pk not in dropped}
        notified = kept | set(sent.values_list("incident", flat=True))
        dropped |= {pk: "" for pk, incident_id in news.items() if incident_id not in notified}
    return dropped


def _is_unsent(claimed: Delivery) -> bool:
    """Return whether no earlier attempt can have succeeded: one that was not stored left its lease to end first."""
    if claimed.attempts == 1 or claimed.leased_until is None:
        return True
    started_at = claimed.leased_until - DeliveryOutbox.lease
    return claimed.last_error is not None and started_at < claimed.next_try_at + DeliveryOutbox.lease


def _delete(delivery: Delivery) -> None:
    with transaction.atomic():
        AlertChannel.objects.select_for_update(no_key=True).filter(pk=delivery.channel_id).first()
        if Delivery.objects.filter(pk=delivery.pk, attempts=delivery.attempts).delete()[0]:
            turns.release(delivery.channel_id, delivery.pk)


def _foreign(items: Sequence[DeliveryItem], owner: Caller) -> set[int]:
    """Return the keys of items whose incident, or else monitor or location, the owner cannot read."""
    of_incident = {item.pk: item.incident_id for item in items if item.incident_id is not None}
    others = [item for item in items if item.incident_id is None]
    of_other = {item.pk: item.payload["monitor_id"] or item.payload.get("location_id") for item in others}
    keys = set(filter(None, of_other.values()))
    incidents = access.accessible(owner, Incident.objects.filter(pk__in=of_incident.values()))
    readable = {None, *incidents.values_list("pk", flat=True)}
    for rows in (Monitor.objects.filter(public_id__in=keys), Location.objects.filter(public_id__in=keys)):
        readable |= set(access.accessible(owner, rows).values_list("public_id", flat=True))
    return {pk for pk, key in (of_incident | of_other).items() if key not in readable}


def _send(channel: AlertChannel, items: Sequence[Payload], key: str) -> SendResult:
    now = utc_now()
    try:
        message = messages.render(items, key=key, base_url=settings.BASE_URL, now=now)
        if channel.templates:
            message = templates.applied(channel, items, message)
        return KINDS[channel.kind].send(channel.config, message, key=key, now=now)
    except Exception:
        # Our own error fails only this message, and the next ones are still sent.
        logger.exception("the alert %s could not be sent", key)
        return SendResult(delivered=False, detail="Internal error. It has been logged.")


OUTBOX = DeliveryOutbox()


def oldest_alert(database: psycopg.Connection, *, now: datetime) -> datetime | None:
    """Return since when the oldest status change, incident, step or message waits, or None. Raise psycopg.Error."""
    found: datetime | None
    ((found,),) = database.execute(_OLDEST, {"now": now})
    return found
