"""What people are told of incidents, and when they are not: mutes, maintenance windows, flapping.

An incident is due until what was said is what is so. Each look at a due one either puts the news into the outbox and
writes down that it was said, in one transaction, or writes down why not. So a silence ends by itself, whichever it was
and however it ended: the next look says what still has to be said.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from alerts.batch import NotificationBatch, Silences, monitor_payload, subscribed
from alerts.events import EventType
from alerts.models import Topic
from alerts.outbox import OutboxItem, put
from alerts.routing import routes_of
from core.clock import to_ms
from core.db import try_advisory_lock
from incidents import flapping, windows
from incidents.consuming import LOCK
from incidents.models import FlappingSpell, Incident, IncidentEvent, MaintenanceWindow
from monitors.models import ExpiryWarning, StatusChange

BATCH = 2_000
_INSTANT = timedelta(microseconds=1)

Quiet = Incident.Quiet

_CLOSINGS: dict[str | None, EventType] = {
    Incident.Resolution.RECOVERED: EventType.RECOVERED,
    Incident.Resolution.PAUSED: EventType.PAUSED,
    Incident.Resolution.DELETED: EventType.DELETED,
}


def notify_incidents(now: datetime) -> None:
    """Say what is to be said of incidents at `now`; nothing while somebody else does."""
    with transaction.atomic():
        if not try_advisory_lock(LOCK):
            return
        after_windows = _still_down_after(now)
        windows.roll_forward(now)
        _notify_settled(flapping.end_settled(now), now)
        _notify_due(now)
        _notify_acknowledged(now)
        _notify_still_down([one for one in after_windows if one.resolved_at is None], now)


def notify_slow(changes: Sequence[StatusChange], *, now: datetime) -> None:
    """Of monitors that became slow: of one that wavers once in FLAPPING_MINUTES, and of none while silence is wanted.

    Inside the transaction that marks the changes as processed.
    """
    quiet = Silences.of([change.monitor for change in changes], now)
    wavering = flapping.slow_before(changes)
    told = [
        change
        for change in changes
        if change.pk not in wavering and quiet.reason(change.monitor) in (None, Quiet.FLAPPING)
    ]
    routes = routes_of({change.monitor_id for change in told})
    put(
        [
            OutboxItem(
                f"change:{change.pk}",
                monitor_payload(
                    change.monitor,
                    EventType.SLOW,
                    change.at,
                    reason_code=change.reason_code,
                    detail=change.detail,
                ),
                subscribed(routes, change.monitor_id, Topic.SLOW),
            )
            for change in told
        ],
        now=now,
    )


def notify_expiries(now: datetime) -> None:
    """Of certificates and registrations that end soon; of muted monitors and those in a window once that is over."""
    with transaction.atomic():
        if not try_advisory_lock(LOCK):
            return
        waiting = ExpiryWarning.objects.filter(processed_at=None).filter(
            Q(monitor__muted_until=None) | Q(monitor__muted_until__lte=now)
        )
        warnings = list(waiting.select_related("monitor", "monitor__project").order_by("pk")[:BATCH])
        covered = windows.covered([warning.monitor_id for warning in warnings], now)
        told = [warning for warning in warnings if warning.monitor_id not in covered]
        routes = routes_of({warning.monitor_id for warning in told})
        put(
            [
                OutboxItem(
                    f"warning:{warning.pk}",
                    monitor_payload(
                        warning.monitor,
                        EventType(warning.subject),
                        now,
                        expires_at=to_ms(warning.expires_at),
                    ),
                    subscribed(routes, warning.monitor_id, Topic.EXPIRY),
                )
                for warning in told
            ],
            now=now,
        )
        ExpiryWarning.objects.filter(pk__in=[warning.pk for warning in told]).update(processed_at=now)


def _notify_due(now: datetime) -> None:
    opening = Q(resolved_at=None, announced_at=None, confirmed_at__isnull=False)
    closing = Q(resolved_at__isnull=False, announced_at__isnull=False, closing_announced_at=None)
    # Over before anybody looked, since it was short or the senders were away. It was an outage all the same.
    passed = Q(resolved_at__isnull=False, announced_at=None, quiet=None, monitor__isnull=False)
    due = list(
        Incident.objects.select_for_update(of=["self"])
        .filter(opening | closing | passed)
        .filter(Q(look_again_at=None) | Q(look_again_at__lte=now))
        .select_related("monitor", "monitor__project", "project")
        .order_by("pk")[:BATCH]
    )
    silences = Silences.of([incident.monitor for incident in due], now)
    opened = {one.monitor_id for one in due if one.is_open and one.monitor_id is not None}
    beginning = flapping.begins_to_flap(opened, now=now)
    batch = NotificationBatch(now)
    for incident in due:
        reason = silences.reason(incident.monitor)
        if reason is not None:
            batch.hold_back(incident, reason)
            continue
        if not incident.is_open:
            if incident.announced_at is None:
                batch.say(incident, EventType.DOWN)
            incident.announced_at, incident.closing_announced_at = incident.announced_at or now, now
            batch.say(incident, _CLOSINGS[incident.resolution])
        elif incident.monitor_id in beginning:
            assert incident.monitor_id is not None
            assert incident.confirmed_at is not None
            flapping.begin(incident.monitor_id, changed_at=incident.confirmed_at, now=now)
            incident.announced_at = now
            batch.say(incident, EventType.FLAPPING)
        else:
            incident.announced_at = now
            batch.say(incident, EventType.STILL_DOWN if incident.quiet else EventType.DOWN)
        if incident.acknowledged_at is not None:  # before anybody heard of it: old news
            incident.acknowledgement_announced_at = incident.acknowledgement_announced_at or now
        incident.quiet = incident.look_again_at = None
    _save(due)
    batch.publish()


def _notify_acknowledged(now: datetime) -> None:
    """Who heard of an outage hears that somebody takes care of it; not afterwards, where silence is wanted now."""
    incidents = list(
        Incident.objects.select_for_update(of=["self"])
        .filter(resolved_at=None, announced_at__isnull=False, acknowledged_at__isnull=False)
        .filter(acknowledgement_announced_at=None)
        .select_related("monitor", "monitor__project", "project")
        .order_by("pk")[:BATCH]
    )
    if not incidents:
        return
    silences = Silences.of([incident.monitor for incident in incidents], now)
    acknowledged = IncidentEvent.objects.filter(incident__in=incidents, type=IncidentEvent.Type.ACKNOWLEDGED)
    by = {event.incident_id: event.data.get("by") for event in acknowledged}
    batch = NotificationBatch(now)
    for incident in incidents:
        incident.acknowledgement_announced_at = now
        if silences.reason(incident.monitor) is None:
            batch.say(incident, EventType.ACKNOWLEDGED, by=by.get(incident.pk))
    Incident.objects.bulk_update(incidents, ["acknowledgement_announced_at"], batch_size=500)
    batch.publish()


def _notify_settled(spells: Sequence[FlappingSpell], now: datetime) -> None:
    """Say how each of them has settled; and no more of what happened to it while it flapped."""
    if not spells:
        return
    monitors = {spell.monitor_id: spell.monitor for spell in spells}
    incidents = list(
        Incident.objects.select_for_update(of=["self"])
        .filter(monitor__in=monitors)
        .filter(Q(resolved_at=None) | Q(announced_at__isnull=False, closing_announced_at=None))
        .select_related("monitor", "monitor__project", "project")
        .order_by("pk")
    )
    silences = Silences.of(list(monitors.values()), now)
    batch = NotificationBatch(now)
    last = {incident.monitor_id: incident for incident in incidents}
    for incident in incidents:
        incident.look_again_at = None
        reason = silences.reason(incident.monitor)
        if incident.is_open:
            if reason is None:
                incident.announced_at, incident.quiet = now, None
                batch.say(incident, EventType.STILL_DOWN)
        elif last[incident.monitor_id] is not incident:
            incident.closing_announced_at = now
        elif reason is None:
            incident.closing_announced_at, incident.quiet = now, None
            batch.say(incident, EventType.SETTLED)
    _save(incidents)
    batch.publish()


def _still_down_after(now: datetime) -> list[Incident]:
    """Outages that were told of before a window which ends now: silence began over them, and must not be all that
    people hear at its end. Looked up before the windows are rolled forward.
    """
    found: dict[int, Incident] = {}
    for window in MaintenanceWindow.objects.filter(current_ends_at__lte=now):
        if not window.all_monitors:
            within = Q(monitor__in=window.monitors.all())
        elif window.project_id is not None:
            within = Q(monitor__project=window.project_id)
        else:
            within = Q(monitor__owner=window.owner_id)
        incidents = Incident.objects.filter(
            within, resolved_at=None, announced_at__lt=window.current_starts_at
        ).select_related("monitor", "monitor__project", "project")
        by_monitor = {one.monitor_id: one for one in incidents if one.monitor_id is not None}
        assert window.current_ends_at is not None
        for monitor_id in windows.covered(list(by_monitor), window.current_ends_at - _INSTANT):
            found[by_monitor[monitor_id].pk] = by_monitor[monitor_id]
    return list(found.values())


def _notify_still_down(incidents: Sequence[Incident], now: datetime) -> None:
    silences = Silences.of([incident.monitor for incident in incidents], now)
    batch = NotificationBatch(now)
    for incident in incidents:
        if silences.reason(incident.monitor) is None:
            batch.say(incident, EventType.STILL_DOWN)
    batch.publish()


def _save(incidents: Sequence[Incident]) -> None:
    Incident.objects.bulk_update(
        incidents,
        ["announced_at", "acknowledgement_announced_at", "closing_announced_at", "quiet", "look_again_at"],
        batch_size=500,
    )
