"""Compare accepted alerts with incidents, and incidents with status changes. Import it after Django is set up.

Every change to down opens an incident and every change back resolves it. Each channel of the monitor gets one alert
about the outage and then one about its end; of a monitor that depends on another one, none. Repetitions must have the
same key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q

from alerts.events import WORDS, EventType, Topic
from alerts.models import Delivery, DeliveryItem
from alerts.planning import ESCALATED
from incidents.models import Escalation, Incident, IncidentEvent
from monitors.models import StatusChange
from tests.alerts.receiver import Call
from tests.faults.consumer import ReceivedAlert
from tests.faults.monitor_audit import Audit
from tests.faults.tenant import STEP_MINUTES, STEPS, MonitoredPart, channels_of

LATEST_SEC = 15.0
"""How late a step may run when the processes are back."""
OPEN = [Delivery.State.GATHERING, Delivery.State.WAITING]

Outage = tuple[datetime | None, datetime | None]
"""When an outage was confirmed and when it ended."""


def unfinished() -> str:
    """Return what is not delivered yet, in words; empty if nothing is left."""
    due = Q(announced_at=None) | Q(resolved_at__isnull=False, closing_announced_at=None)
    left = {
        "changes": StatusChange.objects.filter(processed_at=None).count(),
        "incidents": Incident.objects.filter(due).exclude(quiet=Incident.Quiet.HELD).count(),
        "messages": Delivery.objects.filter(state__in=OPEN).count(),
        "steps": Escalation.objects.filter(next_at__isnull=False, incident__resolved_at=None).count(),
    }
    return ", ".join(f"{count} {what}" for what, count in left.items() if count)


@dataclass(frozen=True)
class AlertItem:
    """One item of an accepted message: the number and key of the message, and the index of the item."""

    call: int
    key: str
    item: int
    event_type: EventType

    def __str__(self) -> str:
        return f"{self.event_type} as item {self.item} of {self.key}"


def audit_alerts(
    audit: Audit, fleet: Sequence[MonitoredPart], received: Sequence[ReceivedAlert], bursts: Sequence[float] = ()
) -> int:
    """Report violations to the audit. Return how many alerts arrived, each counted once per channel.

    `bursts` are when the faults began whose recoveries the audit has.
    """
    items_by_alert: dict[tuple[str, str | None, Topic | None], list[AlertItem]] = defaultdict(list)
    for number, each in enumerate(received):
        if each.accepted:
            for index, (event_type, incident_id) in enumerate(_items(each.call)):
                place = each.call.path, incident_id, WORDS[event_type].topic
                items_by_alert[place].append(AlertItem(number, each.call.key, index, event_type))
    arrived = len(items_by_alert)
    by_monitor = {watched.monitor_id: watched for watched in fleet}
    incidents: dict[int, list[Incident]] = defaultdict(list)
    for incident in Incident.objects.order_by("pk"):
        assert incident.monitor_id is not None
        incidents[incident.monitor_id].append(incident)
    outages = _outages()
    for watched in fleet:
        _compare_outages(audit, watched, outages[watched.monitor_id], incidents[watched.monitor_id])
        for incident in incidents[watched.monitor_id]:
            _check_announced(audit, watched, incident)
            if watched.part.is_escalated:
                _check_escalated(audit, watched, incident, items_by_alert, bursts)
                continue
            for channel in channels_of(watched.part):
                downs, overs = (
                    items_by_alert.pop((f"/{channel}", incident.public_id, topic), [])
                    for topic in (Topic.DOWN, Topic.RECOVERED)
                )
                _check_arrived(audit, watched, incident, channel, downs, overs)
    for (path, incident_id, _), items in items_by_alert.items():
        audit.report("double_alerts", path, audit.end, f"{items[0]}, but no such alert of {incident_id} exists")
    for delivery in Delivery.objects.exclude(state=Delivery.State.SENT).select_related("channel"):
        items_of = DeliveryItem.objects.filter(delivery=delivery, incident__monitor__isnull=False)
        watched_ids = list(items_of.values_list("incident__monitor", flat=True))
        text = f"{delivery} after {delivery.attempts} attempts: {delivery.last_error}"
        about = by_monitor[watched_ids[0]] if watched_ids else delivery.channel.name
        audit.report("lost_alerts", about, delivery.created_at.timestamp() - audit.start, text)
    return arrived


def _items(call: Call) -> Iterator[tuple[EventType, str | None]]:
    """Yield the items of a message, as (event_type, incident)."""
    payload = call.json
    if payload.get("left_out"):
        # The payload has only the number of items that did not fit. The database has the items.
        stored = DeliveryItem.objects.filter(delivery__public_id=call.key).order_by("pk")
        for stored_payload in stored.values_list("payload", flat=True):
            yield EventType(stored_payload["event_type"]), stored_payload["incident_id"]
        return
    for item in payload.get("items", [payload]):
        yield EventType(item["event"]), item["incident"] and item["incident"]["id"]


def _outages() -> dict[int, list[Outage]]:
    """Return the outages of each monitor, from its status changes."""
    found: dict[int, list[Outage]] = defaultdict(list)
    changes = StatusChange.objects.filter(kind=StatusChange.Kind.STATUS)
    # A first failure is stored as processed at once: a later change confirms it.
    for change in changes.exclude(after="down", processed_at=F("at")).order_by("pk"):
        outages = found[change.monitor_id]
        is_open = bool(outages) and outages[-1][1] is None
        if change.after == "down" and not is_open:
            outages.append((change.at, None))
        elif change.after != "down" and is_open:
            began = outages[-1][0]
            assert began is not None
            outages[-1] = began, max(change.at, began)
    return found


def _compare_outages(
    audit: Audit, watched: MonitoredPart, outages: Sequence[Outage], found: Sequence[Incident]
) -> None:
    true = Counter(outages)
    stored = Counter((incident.confirmed_at, incident.resolved_at) for incident in found)
    for kind, wrong, text in (
        ("lost_alerts", true - stored, "an outage without an incident"),
        ("double_alerts", stored - true, "an incident without an outage"),
    ):
        for began, ended in wrong:
            assert began is not None
            audit.report(kind, watched, began.timestamp() - audit.start, f"{text}: {began} to {ended}")


def _check_announced(audit: Audit, watched: MonitoredPart, incident: Incident) -> None:
    """Check that the incident and its end were announced, or neither if its cause is that of the parent."""
    assert incident.confirmed_at is not None
    at = incident.confirmed_at.timestamp() - audit.start
    if watched.part.parent is not None:
        if incident.announced_at is not None:
            audit.report("double_alerts", watched, at, f"{incident} was announced beside that of its parent")
        return
    if incident.announced_at is None:
        audit.report("lost_alerts", watched, at, f"{incident} was not announced")
    elif incident.resolved_at is not None and incident.closing_announced_at is None:
        audit.report("lost_alerts", watched, at, f"the end of {incident} was not announced")


Alerts = dict[tuple[str, str | None, Topic | None], list[AlertItem]]
"""The accepted items by path, incident and topic."""


def _check_escalated(
    audit: Audit, watched: MonitoredPart, incident: Incident, alerts: Alerts, bursts: Sequence[float]
) -> None:
    """Check the steps of an incident: each ran once and in time, was sent once, and was followed by the end."""
    ran = list(incident.events.filter(type=IncidentEvent.Type.ESCALATED, data__has_key="step").order_by("pk"))
    by_step = {event.data["step"]: event for event in ran}
    if len(by_step) < len(ran):
        audit.report("double_alerts", watched, audit.end, f"a step of {incident} ran twice")
    items = DeliveryItem.objects.filter(incident=incident, source__startswith=ESCALATED, delivery__state="sent")
    sent = set(items.values_list("channel__name", flat=True))
    for step, channel in enumerate(STEPS):
        downs, overs = (
            alerts.pop((f"/{channel}", incident.public_id, topic), []) for topic in (Topic.DOWN, Topic.RECOVERED)
        )
        _check_step(audit, watched, incident, step, by_step.get(step), bursts)
        at = incident.started_at.timestamp() - audit.start
        if bool(downs) is not (channel in sent):
            known = "notified" if channel in sent else "not notified"
            text = f"{channel} got {downs or 'nothing'} of {incident}, and is stored as {known}"
            audit.report("lost_alerts", watched, at, text)
        _check_arrived(audit, watched, incident, channel, downs, overs, said=channel in sent)


def _check_step(
    audit: Audit,
    watched: MonitoredPart,
    incident: Incident,
    step: int,
    ran: IncidentEvent | None,
    bursts: Sequence[float],
) -> None:
    """Check that a step ran in time, unless the outage was over by then."""
    if incident.announced_at is None:
        return  # reported
    due = incident.announced_at.timestamp() + step * STEP_MINUTES * 60 - audit.start
    latest = max([due, *(end for start, end in zip(bursts, audit.recoveries, strict=False) if start <= due <= end)])
    latest += LATEST_SEC
    over = audit.end if incident.resolved_at is None else incident.resolved_at.timestamp() - audit.start
    at = audit.end if ran is None else ran.at.timestamp() - audit.start
    if (ran is None and over > latest) or (ran is not None and at > latest):
        when = "never" if ran is None else f"{at - due:.1f} s late"
        audit.report("late_steps", watched, due, f"step {step} of {incident} ran {when}")
    elif ran is not None and at < due - 1:
        audit.report("double_alerts", watched, at, f"step {step} of {incident} ran {due - at:.1f} s early")


def _check_arrived(
    audit: Audit,
    watched: MonitoredPart,
    incident: Incident,
    channel: str,
    downs: Sequence[AlertItem],
    overs: Sequence[AlertItem],
    *,
    said: bool = True,
) -> None:
    """Check what a channel got of an incident. Without `said` it was not notified, and gets nothing."""
    for what, said_at, items in (
        ("outage", incident.announced_at if said else None, downs),
        ("end", incident.closing_announced_at if said else None, overs),
    ):
        at = (said_at or incident.started_at).timestamp() - audit.start
        if said_at is not None and not items:
            audit.report("lost_alerts", watched, at, f"{channel} got no alert about the {what} of {incident}")
        elif said_at is None and items:
            text = f"{channel} got an alert about the {what} of {incident}, which was not announced: {items[0]}"
            audit.report("double_alerts", watched, at, text)
        if len({(each.key, each.item) for each in items}) > 1:
            text = f"{channel} got several alerts about the {what} of {incident}: {', '.join(map(str, items))}"
            audit.report("double_alerts", watched, at, text)
        if len({each.event_type for each in items}) > 1:
            audit.report("double_alerts", watched, at, f"{channel} got different events: {items}")
    if downs and overs and (overs[0].call, overs[0].item) < (downs[0].call, downs[0].item):
        assert incident.resolved_at is not None
        at = incident.resolved_at.timestamp() - audit.start
        audit.report("overtaken_alerts", watched, at, f"{channel} got {overs[0]} before {downs[0]} of {incident}")
