"""One look at incidents: what is kept quiet of them, what is said, and all that is written about either."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q

from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Topic
from alerts.outbox import OutboxItem, put
from alerts.routing import Routes, routes_of
from core.clock import to_ms
from incidents import flapping, windows
from incidents.models import Incident, IncidentEvent
from incidents.timeline import bulk_note, event
from monitors.models import Monitor

LOOK_AGAIN = timedelta(seconds=15)
"""Mutes and windows can be ended early by people; this is how late that may be noticed."""

Quiet = Incident.Quiet

TOPICS = {
    EventType.DOWN: Topic.DOWN,
    EventType.STILL_DOWN: Topic.DOWN,
    EventType.FLAPPING: Topic.DOWN,
    EventType.ACKNOWLEDGED: Topic.DOWN,
    EventType.RECOVERED: Topic.RECOVERED,
    EventType.PAUSED: Topic.RECOVERED,
    EventType.DELETED: Topic.RECOVERED,
    EventType.SETTLED: Topic.RECOVERED,
    EventType.SLOW: Topic.SLOW,
    EventType.CERTIFICATE: Topic.EXPIRY,
    EventType.DOMAIN: Topic.EXPIRY,
    EventType.REMINDER: Topic.REMINDER,
}
_SAID = {
    EventType.DOWN: "that it is down",
    EventType.STILL_DOWN: "that it is still down",
    EventType.FLAPPING: "that it is flapping; nothing more is said until it has settled",
    EventType.ACKNOWLEDGED: "that it was acknowledged",
    EventType.RECOVERED: "that it has recovered",
    EventType.PAUSED: "that the monitor was paused",
    EventType.DELETED: "that the monitor was deleted",
    EventType.SETTLED: "that it has settled, and is not down",
    EventType.REMINDER: "that it is still down, as a reminder",
}
_UNSAID = {
    Quiet.MUTED: "Nobody is alerted: the monitor is muted.",
    Quiet.MAINTENANCE: "Nobody is alerted: it is under maintenance.",
    Quiet.FLAPPING: "Nobody is alerted: the monitor is flapping.",
}


def monitor_payload(
    monitor: Monitor,
    event_type: EventType,
    at: datetime,
    *,
    reason_code: str | None = None,
    detail: str | None = None,
    expires_at: int | None = None,
) -> Payload:
    return Payload(
        event_type=event_type,
        at=to_ms(at),
        monitor_id=monitor.public_id,
        monitor=monitor.name or monitor.url or monitor.public_id,
        type=monitor.type,
        url=monitor.url,
        project=monitor.project.name if monitor.project else None,
        reason_code=reason_code,
        detail=detail,
        expires_at=expires_at,
    )


def incident_payload(
    incident: Incident, event_type: EventType, at: datetime, *, by: str | None = None
) -> Payload:
    """Of an incident with a monitor, or whose monitor is gone."""
    monitor = incident.monitor
    return Payload(
        event_type=event_type,
        at=to_ms(at),
        monitor_id=incident.monitor_public_id,
        monitor=incident.name if monitor is None else monitor.name or monitor.url or monitor.public_id,
        type="http" if monitor is None else monitor.type,
        url="" if monitor is None else monitor.url,
        project=incident.project.name if incident.project else None,
        incident_id=incident.public_id,
        started_at=to_ms(incident.started_at),
        resolved_at=None if incident.resolved_at is None else to_ms(incident.resolved_at),
        reason_code=incident.reason_code,
        detail=incident.detail,
        evidence=incident.evidence or {},
        by=by,
    )


@dataclass(frozen=True, slots=True)
class Silences:
    """Which of some monitors nothing is said of at `now`."""

    now: datetime
    covered: Collection[int] = frozenset()
    flapping: Collection[int] = frozenset()

    @classmethod
    def of(cls, monitors: Sequence[Monitor | None], now: datetime) -> Silences:
        ids = {monitor.pk for monitor in monitors if monitor is not None}
        return cls(now, windows.covered(ids, now), flapping.flapping_of(ids)) if ids else cls(now)

    def reason(self, monitor: Monitor | None) -> Incident.Quiet | None:
        if monitor is None:
            return None
        if monitor.muted_until is not None and monitor.muted_until > self.now:
            return Quiet.MUTED
        if monitor.pk in self.covered:
            return Quiet.MAINTENANCE
        return Quiet.FLAPPING if monitor.pk in self.flapping else None


@dataclass(frozen=True, slots=True)
class _Said:
    incident: Incident
    event_type: EventType
    channel_ids: Collection[int] | None
    by: str | None


@dataclass(slots=True)
class NotificationBatch:
    """EventType of incidents as it is put together, and all that is to be written of it."""

    now: datetime
    said: list[_Said] = field(default_factory=list)
    unsaid: list[IncidentEvent] = field(default_factory=list)

    def say(
        self,
        incident: Incident,
        event_type: EventType,
        *,
        channel_ids: Collection[int] | None = None,
        by: str | None = None,
    ) -> None:
        """To these channels, or to all that want to hear of such news; `by` whom it came about."""
        self.said.append(_Said(incident, event_type, channel_ids, by))

    def hold_back(self, incident: Incident, reason: Incident.Quiet) -> None:
        incident.look_again_at = self.now + LOOK_AGAIN
        if incident.quiet != reason:
            incident.quiet = reason
            self.unsaid.append(
                event(
                    incident,
                    IncidentEvent.Type.SUPPRESSED,
                    _UNSAID[reason],
                    at=self.now,
                    data={"reason": reason.value},
                )
            )

    def publish(self) -> None:
        """Write the timelines and the messages."""
        choose = _chooser([one.incident for one in self.said if one.channel_ids is None])
        events, pieces = list(self.unsaid), []
        for one in self.said:
            channel_ids = choose(one) if one.channel_ids is None else one.channel_ids
            announced = event(
                one.incident,
                IncidentEvent.Type.ANNOUNCED,
                f"{_channels(len(channel_ids))} told {_SAID[one.event_type]}.",
                at=self.now,
                data={"news": one.event_type.value, "channels": len(channel_ids)},
            )
            events.append(announced)
            payload = incident_payload(one.incident, one.event_type, self.now, by=one.by)
            pieces.append(OutboxItem(f"event:{announced.public_id}", payload, channel_ids, one.incident))
        bulk_note(events)
        put(pieces, now=self.now)


def subscribed(routes: Routes, monitor_id: int, topic: Topic) -> list[int]:
    return [channel_id for channel_id, topics in routes.get(monitor_id, {}).items() if topic in topics]


def _chooser(incidents: Sequence[Incident]) -> Callable[[_Said], Collection[int]]:
    routes = routes_of({one.monitor_id for one in incidents if one.monitor_id is not None})
    told = _told([one for one in incidents if one.monitor_id is None])

    def choose(one: _Said) -> Collection[int]:
        monitor_id = one.incident.monitor_id
        if monitor_id is None:
            return told[one.incident.pk]
        return subscribed(routes, monitor_id, TOPICS[one.event_type])

    return choose


def _told(incidents: Sequence[Incident]) -> dict[int, list[int]]:
    """Of incidents whose monitors are gone, and with them the routes: who heard of them, and may still."""
    found: dict[int, list[int]] = {}
    for incident in incidents:
        whose = Q(owner=incident.owner_id)
        if incident.project_id is not None:
            whose |= Q(project=incident.project_id) | Q(owner__memberships__project=incident.project_id)
        channels = AlertChannel.objects.filter(
            whose,
            enabled=True,
            confirmed_at__isnull=False,
            owner__is_active=True,
            topics__contains=[Topic.RECOVERED],
            deliveries__items__incident=incident,
        )
        found[incident.pk] = list(channels.order_by("pk").values_list("pk", flat=True).distinct())
    return found


def _channels(count: int) -> str:
    if count == 0:
        return "No channel is set up to be"
    return "1 channel is" if count == 1 else f"{count} channels are"
