"""Silences, and the notifications of many incidents in one batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Q

from alerts.events import WORDS, EventType, Payload, Topic
from alerts.models import AlertChannel
from alerts.outbox import OutboxItem, put
from alerts.selectors import Routes, routes_of
from core.clock import to_ms
from core.text import counted
from incidents import flapping, holding, windows
from incidents.holding import Cause, Hold
from incidents.models import Incident, IncidentEvent
from monitors.models import Monitor

LOOK_AGAIN = timedelta(seconds=15)
"""Mutes and windows can end early. This is how late that may be noticed."""

Quiet = Incident.Quiet

# A check of the parent, and what follows from it, is a matter of seconds.
_LOOK_AGAIN_AT_PARENT = {
    Cause.DOWN: LOOK_AGAIN,
    Cause.FAILING: timedelta(seconds=2),
    Cause.UNCHECKED: timedelta(seconds=1),
    Cause.RECOVERED: timedelta(seconds=5),
}
# What is only in doubt is not noted: it mostly ends after a second.
_HELD = {
    Cause.DOWN: "is down",
    Cause.RECOVERED: "was down, and further checks show whether this monitor is down on its own",
}
_SUPPRESSED = {Quiet.MUTED: "muted", Quiet.MAINTENANCE: "under maintenance", Quiet.FLAPPING: "flapping"}


def monitor_payload(monitor: Monitor, event_type: EventType, at: datetime, **more: Any) -> Payload:
    """Return the payload of a monitor, with further fields of Payload."""
    return Payload(
        event_type=event_type,
        at=to_ms(at),
        monitor_id=monitor.public_id,
        monitor=monitor.name or monitor.url or monitor.public_id,
        type=monitor.type,
        url=monitor.url,
        project=monitor.project.name if monitor.project else None,
        **more,
    )


def incident_payload(incident: Incident, event_type: EventType, at: datetime, *, by: str | None = None) -> Payload:
    """Return the payload of an incident, whose monitor may be deleted."""
    monitor = incident.monitor
    if monitor is None:
        monitor = Monitor(public_id=incident.monitor_public_id, name=incident.name, type="http")
    return replace(
        monitor_payload(monitor, event_type, at),
        project=incident.project.name if incident.project else None,
        incident_id=incident.public_id,
        started_at=to_ms(incident.started_at),
        resolved_at=None if incident.resolved_at is None else to_ms(incident.resolved_at),
        reason_code=incident.reason_code,
        detail=incident.detail,
        evidence=incident.evidence or {},
        by=by,
    )


def silences_of(monitors: Iterable[Monitor | None], now: datetime) -> dict[int | None, Incident.Quiet]:
    """Return which of the monitors get no alerts at `now`, and why."""
    by_id = {monitor.pk: monitor for monitor in monitors if monitor is not None}
    if not by_id:
        return {}
    muted = [pk for pk, monitor in by_id.items() if monitor.muted_until is not None and monitor.muted_until > now]
    return {
        **dict.fromkeys(flapping.flapping_of(by_id), Quiet.FLAPPING),
        **dict.fromkeys(windows.covered(by_id, now), Quiet.MAINTENANCE),
        **dict.fromkeys(muted, Quiet.MUTED),
    }


MonitorEvent = tuple[str, Monitor, EventType, datetime, Mapping[str, Any]]
"""The source, monitor, type and time of an event, and further fields of its payload."""


def put_events(events: Sequence[MonitorEvent], *, now: datetime) -> None:
    """Write the messages of events of monitors that are not incidents."""
    routes = routes_of({monitor.pk for _, monitor, *_ in events})
    items = [
        OutboxItem(source, monitor_payload(monitor, event_type, at, **more), subscribed(routes, monitor.pk, event_type))
        for source, monitor, event_type, at, more in events
    ]
    put(items, now=now)


class Notice(NamedTuple):
    """A notification for these channels, or for all that subscribe to the topic. `by` is the account that acted."""

    incident: Incident
    event_type: EventType
    channel_ids: Collection[int] | None = None
    by: str | None = None


class NotificationBatch:
    """The notifications of some of these incidents: `notices`, written together with their timelines.

    `silences`: why no alert of a monitor is sent now. `holds`: which incidents wait for a monitor that theirs depends
    on. `routes`: the channels of the monitors, if the caller has them.
    """

    def __init__(self, incidents: Sequence[Incident], now: datetime, routes: Routes | None = None) -> None:
        self.now = now
        self._routes = routes
        self.silences = silences_of((incident.monitor for incident in incidents), now)
        self.holds = holding.find([one for one in incidents if one.monitor_id not in self.silences], now=now)
        self.notices: list[Notice] = []
        self._events: list[IncidentEvent] = []

    def suppress(self, incident: Incident, reason: Incident.Quiet) -> None:
        """Record that an incident is not notified now, and check it again later."""
        incident.look_again_at = self.now + LOOK_AGAIN
        if incident.quiet != reason:
            incident.quiet = reason
            text, data = f"No alert is sent: the monitor is {_SUPPRESSED[reason]}.", {"reason": reason.value}
            self._events.append(
                IncidentEvent(incident=incident, type=IncidentEvent.Type.SUPPRESSED, text=text, at=self.now, data=data)
            )

    def is_silent(self, incident: Incident) -> bool:
        """Return whether no alert of an open incident is sent now."""
        hold = self.holds.of.get(incident.pk)
        return incident.monitor_id in self.silences or (hold is not None and hold.cause is Cause.DOWN)

    def hold(self, incident: Incident, hold: Hold) -> None:
        """Record that an incident waits for a parent of its monitor. One that was over before is not notified."""
        incident.look_again_at = self.now + _LOOK_AGAIN_AT_PARENT[hold.cause]
        if hold.cause not in _HELD:
            return
        if hold.cause is Cause.DOWN:
            incident.caused_by = self._outages.get(hold.parent_id)
        if incident.quiet != Quiet.HELD:
            incident.quiet = Quiet.HELD
            data = {"reason": Quiet.HELD.value, "cause": incident.caused_by and incident.caused_by.public_id}
            text = f"Alerts are held: {hold.parent} {_HELD[hold.cause]}."
            self._events.append(
                IncidentEvent(incident=incident, type=IncidentEvent.Type.SUPPRESSED, text=text, at=self.now, data=data)
            )

    @cached_property
    def _outages(self) -> dict[int | None, Incident]:
        """The open incidents of parents that are down, by monitor."""
        down = {hold.parent_id for hold in self.holds.of.values() if hold.cause is Cause.DOWN}
        return {
            incident.monitor_id: incident for incident in Incident.objects.filter(monitor__in=down, resolved_at=None)
        }

    def write(self) -> None:
        """Write the timelines and the messages."""
        monitors = {one.incident.monitor_id for one in self.notices if one.channel_ids is None}
        routes = self._routes
        if routes is None:
            routes = routes_of([monitor_id for monitor_id in monitors if monitor_id is not None])
        announced: dict[str, tuple[IncidentEvent, Notice]] = {}
        items = []
        for one in self.notices:
            event = IncidentEvent(incident=one.incident, type=IncidentEvent.Type.ANNOUNCED, at=self.now)
            payload = incident_payload(one.incident, one.event_type, self.now, by=one.by)
            items.append(OutboxItem(f"event:{event.public_id}", payload, _channels(one, routes), one.incident))
            announced[items[-1].source] = event, one
        written = put(items, now=self.now)
        not_now = {each.source for each in written.notes}
        for source, (event, one) in announced.items():
            channels = written.sent[source]
            event.data = {"news": one.event_type.value, "channels": channels}
            alerts = f"Alert to {counted(channels, 'channel')}" if channels else "No channel is notified"
            event.text = f"{alerts}{' now' if source in not_now else ''}: {WORDS[one.event_type].sent}."
            self._events.append(event)
        self._events += [each.event(self.now) for each in written.notes if each.incident_id is not None]
        IncidentEvent.objects.bulk_create(self._events)


def subscribed(routes: Routes, key: int, event_type: EventType) -> list[int]:
    """Return the channels of a monitor, or location, that subscribe to the topic."""
    topic = WORDS[event_type].topic
    return [channel_id for channel_id, topics in routes.get(key, {}).items() if topic in topics]


def _channels(notice: Notice, routes: Routes) -> Collection[int]:
    """Return the channels to notify.

    Of a deleted monitor, whose routes are deleted too, these are the channels that got an alert of the incident, and
    may still get one.
    """
    incident = notice.incident
    if notice.channel_ids is not None:
        return notice.channel_ids
    if incident.monitor_id is not None:
        return subscribed(routes, incident.monitor_id, notice.event_type)
    owned = Q(owner=incident.owner_id)
    if incident.project_id is not None:
        owned |= Q(project=incident.project_id) | Q(owner__memberships__project=incident.project_id)
    channels = AlertChannel.objects.filter(
        owned,
        enabled=True,
        confirmed_at__isnull=False,
        owner__is_active=True,
        topics__contains=[Topic.RECOVERED],
        deliveries__items__incident=incident,
    )
    return list(channels.order_by("pk").values_list("pk", flat=True).distinct())
