"""When each channel gets an event: at once, later, or not at all. What is due later is stored as a planned item.

A channel with a delay or with hours may not know of an outage: then it gets no recovery and no acknowledgement of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection

from alerts.events import DELAYED, OVER, EventType
from alerts.models import AlertChannel, DeliveryItem
from alerts.transports import KINDS
from alerts.wording import written
from core.bulk import insert_objects
from core.clock import to_ms
from core.hours import is_within, next_start, parse_hours
from incidents.models import IncidentEvent

ESCALATED = "esc:"
"""The first part of the source of items of an escalation policy. Topics and monitors of the channel do not matter."""

REASONS: Mapping[str, str] = {
    "outside_hours": "outside of the channel's hours",
    "recovered": "the monitor has recovered",
    "paused": "the monitor was paused",
    "deleted": "the monitor was deleted",
    "settled": "the monitor is stable again",
    "closed": "the incident was closed",
    "acknowledged": "it was acknowledged",
    "unacknowledged": "it is no longer acknowledged",
    "later_alert": "a later alert of the monitor was sent",
    "channel": "the channel is disabled or not confirmed",
    "not_selected": "the channel no longer gets alerts of the monitor",
}
"""Why an alert is not sent. Those of an incident that is over are its resolutions, and events of them."""
_FOLLOWS = OVER | {EventType.ACKNOWLEDGED}
_SERIES = """
    SELECT wanted.channel, wanted.monitor, planned.ids, last.event_type
      FROM unnest(%(channels)s::bigint[], %(monitors)s::text[]) AS wanted (channel, monitor)
      LEFT JOIN LATERAL (
            SELECT array_agg(item.id ORDER BY item.id) AS ids
              FROM alerts_deliveryitem AS item
             WHERE item.channel_id = wanted.channel
               AND item.payload ->> 'monitor_id' = wanted.monitor
               AND item.incident_id IS NOT NULL
               AND item.delivery_id IS NULL
           ) AS planned ON true
      LEFT JOIN LATERAL (
            SELECT item.payload ->> 'event_type' AS event_type
              FROM alerts_deliveryitem AS item
             WHERE item.channel_id = wanted.channel
               AND item.payload ->> 'monitor_id' = wanted.monitor
               AND item.incident_id IS NOT NULL
               AND item.delivery_id IS NOT NULL
             ORDER BY item.id DESC
             LIMIT 1
           ) AS last ON true
"""


class PlanNote(NamedTuple):
    """What a timeline says of an alert that is not sent now: when it is due, or why it is not sent at all."""

    source: str
    incident_id: int | None
    channel: AlertChannel
    due_at: datetime | None = None
    reason: str = ""  # one of REASONS

    def event(self, now: datetime) -> IncidentEvent:
        """Return the entry of its incident's timeline."""
        assert self.incident_id is not None
        data: dict[str, object] = {"channel_id": self.channel.public_id}
        if self.due_at is not None:
            kind, text = IncidentEvent.Type.ANNOUNCED, f"Alert to {self.channel} planned for {written(self.due_at)}."
            data["due_at"] = to_ms(self.due_at)
        else:
            kind, text = IncidentEvent.Type.SUPPRESSED, f"Alert to {self.channel} not sent: {REASONS[self.reason]}."
            data["reason"] = self.reason
        return IncidentEvent(incident_id=self.incident_id, type=kind, text=text, at=now, data=data)


def write_notes(notes: Iterable[PlanNote], *, now: datetime) -> None:
    """Add the notes to the timelines of their incidents."""
    insert_objects(each.event(now) for each in notes if each.incident_id is not None)


def lock_channels(keys: Collection[int]) -> dict[int, AlertChannel]:
    """Lock channels, whose planned items then do not change, and return them by key in the order of locks."""
    locked = AlertChannel.objects.select_for_update(no_key=True, of=["self"]).filter(pk__in=keys).order_by("pk")
    columns = ("public_id", "kind", "hint", "topics", "enabled", "confirmed_at", "owner", "owner__is_active")
    found = locked.select_related("owner").only(*columns, "delay_min", "hours", "time_zone", "outside")
    return {channel.pk: channel for channel in found}


def is_gated(channel: AlertChannel) -> bool:
    """Return whether the channel may not know of an outage that was notified."""
    return bool(channel.delay_min or channel.hours)


def is_open(channel: AlertChannel, at: datetime) -> bool:
    """Return whether `at` is within the hours of the channel."""
    return is_within(parse_hours(channel.hours), channel.time_zone, at)


def after_hours(channel: AlertChannel, event_type: str, at: datetime) -> datetime | None:
    """Return when the channel gets an event that is due at `at`, or None if never, by its hours.

    Services with one alert per incident get each recovery: otherwise the alert would stay open.
    """
    if is_open(channel, at):
        return at
    must_close = KINDS[channel.kind].one_alert_each and event_type in OVER
    if channel.outside == AlertChannel.Outside.HOLD:
        return next_start(parse_hours(channel.hours), channel.time_zone, at)
    return at if must_close else None


@dataclass(slots=True)
class _Series:
    """The items of a channel about the incidents of a monitor: those planned, and the last event of a message."""

    planned: list[DeliveryItem] = field(default_factory=list)
    last: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the channel knows of an outage, and not of its end, nor will it."""
        return self.last is not None and self.last not in OVER and not any(map(is_over, self.planned))

    def announces(self, row: DeliveryItem) -> bool:
        """Return whether a planned item already announces the outage of this one."""
        return any(
            item.incident_id == row.incident_id and not is_escalated(item) and item.payload["event_type"] in DELAYED
            for item in self.planned
        )


def is_over(item: DeliveryItem) -> bool:
    return item.payload["event_type"] in OVER


def is_escalated(item: DeliveryItem) -> bool:
    return item.source.startswith(ESCALATED)


def settle(
    rows: Sequence[DeliveryItem], channels: Mapping[int, AlertChannel], *, after: Mapping[str, str], now: datetime
) -> tuple[list[DeliveryItem], list[PlanNote]]:
    """Decide when these new items are due, in their order. Return those to store, and what timelines say.

    The channels are locked. An item of a message that is sent now has no `due_at`. Planned items that an event makes
    void are deleted. `after`: by source, which earlier item it follows.
    """
    all_series = _find_series(rows, channels)
    followed = _find_followed(after, channels)
    kept: list[DeliveryItem] = []
    void: list[DeliveryItem] = []
    notes: list[PlanNote] = []
    for row in rows:
        channel, event_type = channels[row.channel_id], row.payload["event_type"]
        series = all_series.get((row.channel_id, row.payload["monitor_id"])) if row.incident_id else None
        if (earlier := followed.get((row.channel_id, after.get(row.source)))) is not None:
            void.append(earlier)
            continue
        if series is not None and event_type in _FOLLOWS:
            ended = [item for item in series.planned if event_type in OVER and not is_over(item)]
            series.planned = [item for item in series.planned if item not in ended]
            void += ended
            outages = [item for item in ended if item.payload["event_type"] != EventType.ACKNOWLEDGED]
            notes += [PlanNote(item.source, item.incident_id, channel, reason=event_type) for item in outages]
            if (ended or is_gated(channel)) and not series.is_known:
                continue
        elif series is not None and not is_escalated(row) and series.announces(row):
            continue
        due_at = max(row.due_at or now, now)
        if event_type in DELAYED:
            due_at += timedelta(minutes=channel.delay_min)
        settled = after_hours(channel, event_type, due_at)
        if settled is None:
            notes.append(PlanNote(row.source, row.incident_id, channel, reason="outside_hours"))
            continue
        row.due_at = None
        if settled > now:
            row.due_at = settled
            notes.append(PlanNote(row.source, row.incident_id, channel, settled))
        kept.append(row)
        if series is not None and row.due_at is None:
            series.last = event_type
        elif series is not None:
            series.planned.append(row)
    if void:
        DeliveryItem.objects.filter(pk__in=[item.pk for item in void if item.pk is not None]).delete()
        gone = set(map(id, void))
        kept = [row for row in kept if id(row) not in gone]
    return kept, notes


def _find_series(
    rows: Sequence[DeliveryItem], channels: Mapping[int, AlertChannel]
) -> dict[tuple[int, str | None], _Series]:
    """Return the series of those rows that depend on earlier items. Other rows have none."""
    keys = {
        (row.channel_id, row.payload["monitor_id"])
        for row in rows
        if row.incident_id and (row.payload["event_type"] in _FOLLOWS or is_gated(channels[row.channel_id]))
    }
    if not keys:
        return {}
    with connection.cursor() as cursor:
        found, monitors = zip(*sorted(keys), strict=True)
        cursor.execute(_SERIES, {"channels": list(found), "monitors": list(monitors)})
        lines = cursor.fetchall()
    planned = DeliveryItem.objects.in_bulk([pk for *_, pks, _ in lines for pk in pks or ()])
    return {
        (channel_id, monitor_id): _Series([planned[pk] for pk in pks or ()], last)
        for channel_id, monitor_id, pks, last in lines
    }


def _find_followed(
    after: Mapping[str, str], channels: Mapping[int, AlertChannel]
) -> dict[tuple[int, str | None], DeliveryItem]:
    """Return the planned items that others follow, by channel and source."""
    if not after:
        return {}
    found = DeliveryItem.objects.filter(delivery=None, channel__in=channels, source__in=after.values())
    return {(item.channel_id, item.source): item for item in found}
