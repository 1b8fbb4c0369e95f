"""Planned items: sent when they are due, unless that is no longer wanted.

What is still wanted follows from the rows at that time. An item is decided on while its incident, if it has one, and
its channel are locked, in the common order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import QuerySet

from alerts.batch import LOOK_AGAIN, NotificationBatch, silences_of
from alerts.events import WORDS, EventType
from alerts.models import AlertChannel, DeliveryItem
from alerts.outbox import OUTBOX, write
from alerts.planning import ESCALATED, PlanNote, after_hours, is_escalated, is_over, lock_channels, write_notes
from alerts.selectors import Routes, routes_of, routes_of_locations
from alerts.transports import KINDS
from core.isolation import TRY_AGAIN, run_isolated
from incidents import holding
from incidents.models import Incident
from locations.models import Location
from monitors.models import Monitor

BATCH = 500

# An incident that another process has locked is left out: its items are decided on afterwards.
_CLAIM = """
    WITH due AS MATERIALIZED (
        SELECT item.id, item.channel_id, item.incident_id, item.due_at,
               row_number() OVER (PARTITION BY channel.owner_id ORDER BY item.due_at, item.id) AS place
          FROM alerts_deliveryitem AS item
          JOIN alerts_alertchannel AS channel ON channel.id = item.channel_id
         WHERE item.delivery_id IS NULL
           AND item.due_at <= %(now)s
           AND (%(keys)s::bigint[] IS NULL OR item.id = ANY(%(keys)s::bigint[]))
         ORDER BY place, item.due_at
    )
    SELECT due.id, due.channel_id, due.incident_id
      FROM due
     WHERE due.incident_id IS NULL
        OR EXISTS (SELECT FROM incidents_incident WHERE id = due.incident_id FOR NO KEY UPDATE SKIP LOCKED)
     LIMIT %(most)s
"""
_SEEN = """
    SELECT item.id,
           EXISTS (SELECT
                     FROM alerts_deliveryitem AS later
                    WHERE later.channel_id = item.channel_id
                      AND later.payload ->> 'monitor_id' = item.payload ->> 'monitor_id'
                      AND later.incident_id IS NOT NULL
                      AND later.delivery_id IS NOT NULL
                      AND later.id > item.id),
           EXISTS (SELECT
                     FROM alerts_deliveryitem AS other
                    WHERE other.incident_id = item.incident_id
                      AND other.channel_id = item.channel_id
                      AND starts_with(other.source, %(escalated)s))
      FROM alerts_deliveryitem AS item
     WHERE item.id = ANY(%(items)s::bigint[])
"""

_SET_BACK = """
    WITH ahead AS (
        SELECT id FROM alerts_deliveryitem
         WHERE delivery_id IS NULL AND due_at > %(now)s AND at > %(now)s
         ORDER BY id
           FOR NO KEY UPDATE
    )
    UPDATE alerts_deliveryitem AS item
       SET due_at = item.due_at - (item.at - %(now)s), at = %(now)s
      FROM ahead
     WHERE item.id = ahead.id
"""
# The wait after a failed attempt is `notifications.outbox.backoff`. Other messages wait for a minute at most.
_SET_MESSAGES_BACK = """
    WITH ahead AS (
        SELECT id FROM alerts_delivery
         WHERE state IN ('gathering', 'waiting') AND greatest(next_try_at, leased_until) > %(now)s
         ORDER BY id
           FOR NO KEY UPDATE
    )
    UPDATE alerts_delivery AS message
       SET next_try_at = least(message.next_try_at, %(now)s + CASE
               WHEN message.attempts = 0 THEN interval '1 minute'
               ELSE 1.2 * least(interval '1 hour', interval '10 seconds' * 2 ^ (least(message.attempts, 20) - 1)) END),
           leased_until = CASE WHEN message.leased_until IS NOT NULL THEN least(message.leased_until, %(lease_end)s) END
      FROM ahead
     WHERE message.id = ahead.id
"""


class _Verdict(NamedTuple):
    """What happens to an item: dropped for a `reason`, or due again at `due_at`, or else sent."""

    reason: str = ""
    due_at: datetime | None = None


_SEND = _Verdict()


def release_due(now: datetime) -> bool:
    """Send what was planned for now, about BATCH items. Return whether more may be due.

    Drop what is no longer wanted. Look again later at what is muted, under maintenance, held by a parent or outside of
    the channel's hours.
    """
    due = DeliveryItem.objects.filter(delivery=None, due_at__lte=now)

    def put_off(failed: QuerySet[DeliveryItem]) -> None:
        failed.update(due_at=now + TRY_AGAIN)

    return run_isolated(partial(_release_some, now), due, most=BATCH, put_off=put_off)


def _release_some(now: datetime, keys: Collection[int] | None) -> bool:
    """Do it for the items with these keys, or all."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            given = None if keys is None else list(keys)
            cursor.execute(_CLAIM, {"now": now, "most": BATCH, "keys": given})
            found = cursor.fetchall()
        if not found:
            return False
        channels = lock_channels({channel_id for _, channel_id, _ in found})
        # Read after the locks: another process may have decided, and the state of an incident may have changed.
        due = DeliveryItem.objects.select_for_update(no_key=True, of=["self"]).filter(delivery=None, due_at__lte=now)
        items = list(due.filter(pk__in=[pk for pk, *_ in found], channel__in=channels).order_by("due_at", "pk"))
        review = _Review(items, channels, now)
        sent: list[DeliveryItem] = []
        later: list[DeliveryItem] = []
        dropped: list[int] = []
        notes: list[PlanNote] = []
        for item in items:
            channel, verdict = channels[item.channel_id], review.decide(item)
            if verdict.due_at is not None:
                item.due_at, item.at = verdict.due_at, now
                later.append(item)
                continue
            dropped.append(item.pk)
            if verdict.reason:
                notes.append(PlanNote(item.source, item.incident_id, channel, reason=verdict.reason))
            else:
                item.pk, item.at = None, now  # a new key: keys are in the order of messages
                sent.append(item)
        DeliveryItem.objects.bulk_update(later, ["due_at", "at"])
        DeliveryItem.objects.filter(pk__in=dropped).delete()
        write(sent, channels, now=now)
        write_notes(notes, now=now)
        transaction.on_commit(partial(holding.check_parents, review.unchecked, now=now))
    return len(found) == BATCH


def set_back(now: datetime) -> None:
    """Correct what would be sent too late because PostgreSQL's clock was set back, in the transaction that notes it.

    What was written in what is the future now waits from now on, for as long as it would have.
    """
    later = Incident.objects.filter(look_again_at__gt=now + LOOK_AGAIN).order_by("pk")
    keys = list(later.select_for_update(no_key=True).values_list("pk", flat=True))
    Incident.objects.filter(pk__in=keys).update(look_again_at=now)
    with connection.cursor() as cursor:
        cursor.execute(_SET_BACK, {"now": now})
        cursor.execute(_SET_MESSAGES_BACK, {"now": now, "lease_end": now + OUTBOX.lease})


class _Review:
    """What decides on these planned items: their incidents, monitors and channels, at present."""

    def __init__(self, items: Sequence[DeliveryItem], channels: Mapping[int, AlertChannel], now: datetime) -> None:
        self.now, self._channels = now, channels
        self._incidents = Incident.objects.select_related("monitor").in_bulk(
            {item.incident_id for item in items if item.incident_id is not None}
        )
        named = {item.payload["monitor_id"] for item in items} - {None}
        self._monitors = Monitor.objects.in_bulk(named, field_name="public_id")
        located = {item.payload.get("location_id") for item in items} - {None}
        self._locations = dict(Location.objects.filter(public_id__in=located).values_list("public_id", "pk"))
        self._routes = routes_of({monitor.pk for monitor in self._monitors.values()})
        self._routes_of_locations: Routes = routes_of_locations(self._locations.values()) if located else {}
        batch = NotificationBatch(list(self._incidents.values()), now)
        self._holds, self.unchecked = batch.holds.of, batch.holds.unchecked
        self._silences = batch.silences | silences_of(self._monitors.values(), now)
        self._seen = self._find_seen(items)

    def _find_seen(self, items: Sequence[DeliveryItem]) -> dict[int, tuple[bool, bool]]:
        """Return whether a later item was sent, and whether the channel was reached by escalation, by key."""
        wanted = [item.pk for item in items if item.incident_id is not None and is_over(item)]
        if not wanted:
            return {}
        with connection.cursor() as cursor:
            cursor.execute(_SEEN, {"items": wanted, "escalated": ESCALATED})
            return {pk: (is_later, is_escalated) for pk, is_later, is_escalated in cursor.fetchall()}

    def decide(self, item: DeliveryItem) -> _Verdict:
        channel, event_type = self._channels[item.channel_id], item.payload["event_type"]
        if not channel.enabled or channel.confirmed_at is None or not channel.owner.is_active:
            return _Verdict("channel")
        if reason := self._reason_of_incident(item, channel) or self._reason_of_route(item, channel):
            return _Verdict(reason)
        monitor = self._monitors.get(item.payload["monitor_id"])
        is_silent = monitor is not None and self._silences.get(monitor.pk) in (
            Incident.Quiet.MUTED,
            Incident.Quiet.MAINTENANCE,
        )
        if is_silent or item.incident_id in self._holds:
            return _Verdict(due_at=self.now + LOOK_AGAIN)
        due_at = after_hours(channel, event_type, self.now)
        if due_at is None:
            return _Verdict("outside_hours")
        return _Verdict(due_at=due_at) if due_at > self.now else _SEND

    def _reason_of_incident(self, item: DeliveryItem, channel: AlertChannel) -> str:
        """Return why an item about an incident is no longer wanted, or an empty string."""
        if item.payload["incident_id"] is None:
            return ""
        incident = self._incidents.get(item.incident_id or 0)
        if incident is None:
            return "deleted"
        if is_over(item):
            is_later, _ = self._seen.get(item.pk, (False, False))
            return "later_alert" if is_later and not KINDS[channel.kind].one_alert_each else ""
        if incident.resolution is not None:
            return str(incident.resolution)
        is_acknowledged = incident.acknowledged_at is not None
        if item.payload["event_type"] == EventType.ACKNOWLEDGED:
            return "" if is_acknowledged else "unacknowledged"
        return "acknowledged" if is_acknowledged else ""

    def _reason_of_route(self, item: DeliveryItem, channel: AlertChannel) -> str:
        """Return why the channel no longer gets items like this one, or an empty string."""
        topic = WORDS[EventType(item.payload["event_type"])].topic
        if is_escalated(item) or self._seen.get(item.pk, (False, False))[1]:
            return ""
        if (monitor_id := item.payload["monitor_id"]) is not None:
            monitor = self._monitors.get(monitor_id)
            if monitor is None and is_over(item):
                return ""  # its deletion
            topics = {} if monitor is None else self._routes.get(monitor.pk, {})
        elif (location_id := item.payload.get("location_id")) is not None:
            topics = self._routes_of_locations.get(self._locations.get(location_id, 0), {})
        else:
            return "" if topic in channel.topics else "not_selected"
        return "" if topic in topics.get(channel.pk, ()) else "not_selected"
