"""Silences, and the notifications of many incidents in one batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Q

from alerts.events import WORDS, EventType, Payload, Topic
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import OutboxItem, put
from alerts.selectors import Routes, routes_of
from core.bulk import insert_objects
from core.clock import to_ms
from core.db import lock_against_deletion
from core.text import counted, one_line
from incidents import flapping, holding, windows
from incidents.holding import Cause, Hold
from incidents.models import Escalation, Incident, IncidentEvent
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


def policy_of(monitor: Monitor | None) -> Any:
    """Return the escalation policy (of `oncall`) that applies to a monitor: its own, or else its project's, or None.

    A policy applies within its project; one without a project to all monitors of its owner.
    """
    if monitor is None:
        return None
    project = monitor.project
    for policy in (monitor.escalation_policy, project.escalation_policy if project is not None else None):
        if policy is not None and policy.steps and applies(policy, monitor):
            return policy
    return None


def applies(policy: Any, monitor: Monitor) -> bool:
    """Return whether a policy may be that of a monitor, which may have moved since."""
    if policy.project_id is None:
        return bool(policy.owner_id == monitor.owner_id)
    return bool(policy.project_id == monitor.project_id)


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
        self._incidents = incidents
        self._routes = routes
        self.silences = silences_of((incident.monitor for incident in incidents), now)
        self.holds = holding.find([one for one in incidents if one.monitor_id not in self.silences], now=now)
        self.notices: list[Notice] = []
        self.events: list[IncidentEvent] = []
        self.items: list[OutboxItem] = []
        self._escalations: list[Escalation] = []

    @cached_property
    def policies(self) -> dict[int, Any]:
        """The escalation policies of outages that are new, by incident. They are locked against deletion."""
        return {pk: policy for pk, policy in self._found_policies.items() if policy.pk in self._kept_policies}

    @cached_property
    def _found_policies(self) -> dict[int, Any]:
        new = (one for one in self._incidents if one.is_open and one.announced_at is None)
        return {one.pk: policy for one in new if (policy := policy_of(one.monitor)) is not None}

    @cached_property
    def _kept_policies(self) -> set[int]:
        model: Any = Escalation._meta.get_field("policy").related_model
        return lock_against_deletion(model, {policy.pk for policy in self._found_policies.values()})

    def waits(self, incident: Incident) -> bool:
        """Return whether another transaction deletes the incident's policy: a later run knows what follows."""
        return incident.pk in self._found_policies and incident.pk not in self.policies

    def announce(self, incident: Incident, event_type: EventType) -> None:
        """Notify of an open outage: by the escalation policy of its monitor at first, if there is one."""
        policy = self.policies.get(incident.pk)
        incident.announced_at = self.now
        if policy is None:
            self.notices.append(Notice(incident, event_type))
            return
        escalation = Escalation(incident=incident, policy=policy)
        if incident.acknowledged_at is None:
            after_min = policy.steps[0]["after_min"]
            escalation.next_at = self.now + timedelta(minutes=after_min)
            when = f"after {counted(after_min, 'minute')}" if after_min else "at once"
            text = f"Escalation by “{one_line(policy.name)}” begins: the first step runs {when}."
        else:
            escalation.state = Escalation.State.ACKNOWLEDGED
            if policy.acknowledge_timeout_min:
                escalation.next_at = self.now + timedelta(minutes=policy.acknowledge_timeout_min)
            text = f"Escalation by “{one_line(policy.name)}” does not begin: the incident is acknowledged."
        self._escalations.append(escalation)
        self.note(incident, IncidentEvent.Type.ESCALATED, text, policy_id=policy.public_id)

    def note(self, incident: Incident, kind: IncidentEvent.Type, text: str, **data: Any) -> None:
        """Add an entry to the incident's timeline."""
        self.events.append(IncidentEvent(incident=incident, type=kind, text=text, at=self.now, data=data))

    def suppress(self, incident: Incident, reason: Incident.Quiet) -> None:
        """Record that an incident is not notified now, and check it again later."""
        incident.look_again_at = self.now + LOOK_AGAIN
        if incident.quiet != reason:
            incident.quiet = reason
            text = f"No alert is sent: the monitor is {_SUPPRESSED[reason]}."
            self.note(incident, IncidentEvent.Type.SUPPRESSED, text, reason=reason.value)

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
            self.note(incident, IncidentEvent.Type.SUPPRESSED, text, **data)

    @cached_property
    def _outages(self) -> dict[int | None, Incident]:
        """The open incidents of parents that are down, by monitor."""
        down = {hold.parent_id for hold in self.holds.of.values() if hold.cause is Cause.DOWN}
        return {
            incident.monitor_id: incident for incident in Incident.objects.filter(monitor__in=down, resolved_at=None)
        }

    def write(self) -> None:
        """Write the timelines, the messages, and the escalations that begin."""
        followed = self._followed()
        monitors = {
            one.incident.monitor_id
            for one in self.notices
            if one.channel_ids is None and one.incident.pk not in followed and one.incident.monitor_id is not None
        }
        routes = self._routes
        if routes is None:
            routes = routes_of(monitors)
        announced: dict[str, tuple[IncidentEvent, Notice]] = {}
        for one in self.notices:
            event = IncidentEvent(incident=one.incident, type=IncidentEvent.Type.ANNOUNCED, at=self.now)
            source = f"event:{event.public_id}"
            payload = incident_payload(one.incident, one.event_type, self.now, by=one.by)
            by_user = followed[one.incident.pk] if one.incident.pk in followed else {None: _channels(one, routes)}
            self.items += [
                OutboxItem(source, payload, channel_ids, one.incident, user_id=user_id)
                for user_id, channel_ids in by_user.items()
            ]
            announced[source] = event, one
        Escalation.objects.bulk_create(self._escalations)
        written = put(self.items, now=self.now)
        not_now = {each.source for each in written.notes}
        for source, (event, one) in announced.items():
            channels = written.sent[source]
            event.data = {"news": one.event_type.value, "channels": channels}
            alerts = f"Alert to {counted(channels, 'channel')}" if channels else "No channel is notified"
            event.text = f"{alerts}{' now' if source in not_now else ''}: {WORDS[one.event_type].sent}."
            self.events.append(event)
        self.events += [each.event(self.now) for each in written.notes if each.incident_id is not None]
        insert_objects(self.events)

    def _followed(self) -> Mapping[int, Mapping[int | None, Collection[int]]]:
        """Return the channels to which the escalations of these notices sent, or are about to, by incident and person.

        News of an outage goes to them, regardless of their topics.
        """
        sources: dict[int, list[int]] = {}
        for one in self.notices:
            if one.channel_ids is None:
                spell = self._incidents if one.event_type is EventType.SETTLED else [one.incident]
                same = [each for each in spell if each.monitor_id == one.incident.monitor_id]
                if escalated := [each.pk for each in same if hasattr(each, "escalation")]:
                    sources[one.incident.pk] = escalated
        if not sources:
            return {}
        open_or_sent = (Delivery.State.GATHERING, Delivery.State.WAITING, Delivery.State.SENT)
        keys = {key for each in sources.values() for key in each}
        items = DeliveryItem.objects.filter(incident__in=keys, delivery__state__in=open_or_sent, **_USABLE)
        people: dict[int, dict[int, int | None]] = defaultdict(dict)
        for incident_id, channel_id, user_id in items.order_by("pk").values_list("incident", "channel", "user"):
            assert incident_id is not None
            people[incident_id][channel_id] = user_id or people[incident_id].get(channel_id)
        found: dict[int, dict[int | None, list[int]]] = {}
        for pk, escalated in sources.items():
            by_channel = {channel_id: person for key in escalated for channel_id, person in people[key].items()}
            found[pk] = defaultdict(list)
            for channel_id, person in by_channel.items():
                found[pk][person].append(channel_id)
        return found


_USABLE = {"channel__enabled": True, "channel__confirmed_at__isnull": False, "channel__owner__is_active": True}


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
