"""Which notifications are sent for incidents, and when none are: mutes, maintenance windows, flapping.

An incident stays pending until its last notification matches its current state. Each run either writes the notification
into the outbox and marks the incident, in one transaction, or records why not. When a silence ends, for any reason, the
next run notifies what is still true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from alerts.batch import NotificationBatch, monitor_payload, put_events, silences_of, subscribed
from alerts.events import EventType
from alerts.models import Topic
from alerts.selectors import routes_of
from core.clock import to_ms
from core.db import advisory_lock, try_advisory_lock
from incidents import flapping, windows
from incidents.consuming import LOCK
from incidents.models import FlappingSpell, Incident, IncidentEvent, MaintenanceWindow
from monitors.models import ExpiryWarning, StatusChange

BATCH = 2_000
_INSTANT = timedelta(microseconds=1)

Quiet = Incident.Quiet


def notify_incidents(now: datetime) -> None:
    """Send the pending notifications of incidents. Do nothing while another worker does."""
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
    """Notify of monitors that became slow, at most once per monitor in FLAPPING_MINUTES, and not during silences.

    Call it in the transaction that marks the changes as processed.
    """
    silences = silences_of((change.monitor for change in changes), now)
    repeated = flapping.slow_before(changes)
    events = [
        (
            f"change:{change.pk}",
            change.monitor,
            monitor_payload(
                change.monitor, EventType.SLOW, change.at, reason_code=change.reason_code, detail=change.detail
            ),
        )
        for change in changes
        if change.pk not in repeated and silences.get(change.monitor_id) in (None, Quiet.FLAPPING)
    ]
    put_events(events, now=now)


def notify_expiries(now: datetime) -> None:
    """Notify of certificates and domains that expire soon. Muted monitors and those in a window wait."""
    with transaction.atomic():
        if not try_advisory_lock(LOCK):
            return
        waiting = ExpiryWarning.objects.filter(processed_at=None).filter(
            Q(monitor__muted_until=None) | Q(monitor__muted_until__lte=now)
        )
        warnings = list(waiting.select_related("monitor__project").order_by("pk")[:BATCH])
        covered = windows.covered([warning.monitor_id for warning in warnings], now)
        notified = [warning for warning in warnings if warning.monitor_id not in covered]
        events = []
        for warning in notified:
            monitor, event_type = warning.monitor, EventType(warning.subject)
            payload = monitor_payload(monitor, event_type, now, expires_at=to_ms(warning.expires_at))
            events.append((f"warning:{warning.pk}", monitor, payload))
        put_events(events, now=now)
        ExpiryWarning.objects.filter(pk__in=[warning.pk for warning in notified]).update(processed_at=now)


def _notify_due(now: datetime) -> None:
    opening = Q(resolved_at=None, announced_at=None, confirmed_at__isnull=False)
    closing = Q(resolved_at__isnull=False, announced_at__isnull=False, closing_announced_at=None)
    # Over before it was notified: the outage was short, or no worker ran.
    passed = Q(resolved_at__isnull=False, announced_at=None, quiet=None, monitor__isnull=False)
    pending = _locked(opening | closing | passed).filter(Q(look_again_at=None) | Q(look_again_at__lte=now))
    due = list(pending[:BATCH])
    opened = {one.monitor_id for one in due if one.is_open and one.monitor_id is not None}
    beginning = flapping.begins_to_flap(opened, now=now)
    batch = NotificationBatch(due, now)
    for incident in due:
        reason = batch.silence(incident)
        if reason is not None:
            batch.suppress(incident, reason)
            continue
        if not incident.is_open:
            if incident.announced_at is None:
                batch.add(incident, EventType.DOWN)
            incident.announced_at, incident.closing_announced_at = incident.announced_at or now, now
            batch.add(incident, EventType(str(incident.resolution)))  # they have the same names
        elif incident.monitor_id in beginning:
            assert incident.monitor_id is not None
            assert incident.confirmed_at is not None
            flapping.begin(incident.monitor_id, changed_at=incident.confirmed_at, now=now)
            incident.announced_at = now
            batch.add(incident, EventType.FLAPPING)
        else:
            incident.announced_at = now
            batch.add(incident, EventType.STILL_DOWN if incident.quiet else EventType.DOWN)
        if incident.acknowledged_at is not None:  # before its first alert
            incident.acknowledgement_announced_at = incident.acknowledgement_announced_at or now
        incident.quiet = incident.look_again_at = None
    _save(due)
    batch.write()


def _notify_acknowledged(now: datetime) -> None:
    """Notify of acknowledgements. During a silence they are skipped for good."""
    new = Q(announced_at__isnull=False, acknowledged_at__isnull=False, acknowledgement_announced_at=None)
    incidents = list(_locked(new, resolved_at=None)[:BATCH])
    if not incidents:
        return
    acknowledged = IncidentEvent.objects.filter(incident__in=incidents, type=IncidentEvent.Type.ACKNOWLEDGED)
    by = {event.incident_id: event.data.get("by") for event in acknowledged}
    batch = NotificationBatch(incidents, now)
    for incident in incidents:
        incident.acknowledgement_announced_at = now
        if batch.silence(incident) is None:
            batch.add(incident, EventType.ACKNOWLEDGED, by=by.get(incident.pk))
    _save(incidents)
    batch.write()


def _notify_settled(spells: Sequence[FlappingSpell], now: datetime) -> None:
    """Notify how each monitor has settled, and of nothing else that happened while it flapped."""
    if not spells:
        return
    unfinished = Q(resolved_at=None) | Q(announced_at__isnull=False, closing_announced_at=None)
    incidents = list(_locked(unfinished, monitor__in=[spell.monitor_id for spell in spells]))
    batch = NotificationBatch(incidents, now)
    last = {incident.monitor_id: incident for incident in incidents}
    for incident in incidents:
        incident.look_again_at = None
        reason = batch.silence(incident)
        if incident.is_open:
            if reason is None:
                incident.announced_at, incident.quiet = now, None
                batch.add(incident, EventType.STILL_DOWN)
        elif last[incident.monitor_id] is not incident:
            incident.closing_announced_at = now
        elif reason is None:
            incident.closing_announced_at, incident.quiet = now, None
            batch.add(incident, EventType.SETTLED)
    _save(incidents)
    batch.write()


def _still_down_after(now: datetime) -> list[Incident]:
    """Return the outages that were notified before a window that ends now, to notify that they are still down.

    Call it before the windows are rolled forward.
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
        ).select_related("monitor__project", "project")
        by_monitor = {one.monitor_id: one for one in incidents if one.monitor_id is not None}
        assert window.current_ends_at is not None
        for monitor_id in windows.covered(list(by_monitor), window.current_ends_at - _INSTANT):
            found[by_monitor[monitor_id].pk] = by_monitor[monitor_id]
    return list(found.values())


def _notify_still_down(incidents: Sequence[Incident], now: datetime) -> None:
    batch = NotificationBatch(incidents, now)
    for incident in incidents:
        if batch.silence(incident) is None:
            batch.add(incident, EventType.STILL_DOWN)
    batch.write()


def _locked(condition: Q, **conditions: object) -> QuerySet[Incident]:
    """Return these incidents, oldest first, with what their notifications need. Evaluating it locks them."""
    incidents = Incident.objects.filter(condition, **conditions).select_for_update(of=["self"])
    return incidents.select_related("monitor__project", "project").order_by("pk")


def _save(incidents: Sequence[Incident]) -> None:
    Incident.objects.bulk_update(
        incidents,
        ["announced_at", "acknowledgement_announced_at", "closing_announced_at", "quiet", "look_again_at"],
        batch_size=500,
    )


# Counted from the last message to the channel about the incident, or else (for a newer channel) from its first alert.
_OVERDUE = """
    SELECT wanted.incident_id, wanted.channel_id
      FROM unnest(%(incidents)s::bigint[], %(channels)s::bigint[]) AS wanted (incident_id, channel_id)
      JOIN incidents_incident AS incident ON incident.id = wanted.incident_id
      JOIN alerts_alertchannel AS channel ON channel.id = wanted.channel_id
     WHERE %(now)s >= make_interval(hours => channel.remind_every_hours) + coalesce(
               (SELECT max(item.at)
                  FROM alerts_deliveryitem AS item
                 WHERE item.incident_id = incident.id AND item.channel_id = channel.id),
               incident.announced_at)
     ORDER BY wanted.incident_id, wanted.channel_id
"""


def remind(now: datetime) -> None:
    """Remind of open outages that were notified, are not acknowledged, and are not silenced."""
    unacknowledged = Q(resolved_at=None, announced_at__isnull=False, acknowledged_at=None, monitor__isnull=False)
    with transaction.atomic():
        advisory_lock(LOCK)  # a concurrent tick skips its turn and is back in a second
        candidates = Incident.objects.filter(unacknowledged)
        overdue = _overdue(dict(candidates.values_list("pk", "monitor_id")), now)
        # Read again under the lock: an incident may have just been acknowledged.
        incidents = list(_locked(unacknowledged, pk__in=overdue))
        batch = NotificationBatch(incidents, now)
        for incident in incidents:
            if batch.silence(incident) is None:
                batch.add(incident, EventType.REMINDER, channel_ids=overdue[incident.pk])
        batch.write()


def _overdue(monitors: Mapping[int, int | None], now: datetime) -> dict[int, list[int]]:
    """Return the channels to remind, by incident."""
    routes = routes_of({monitor_id for monitor_id in monitors.values() if monitor_id is not None})
    wanted = [
        (incident_id, channel_id)
        for incident_id, monitor_id in monitors.items()
        if monitor_id is not None
        for channel_id in subscribed(routes, monitor_id, Topic.REMINDER)
    ]
    incidents, channels = [one for one, _ in wanted], [channel for _, channel in wanted]
    found: dict[int, list[int]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_OVERDUE, {"now": now, "incidents": incidents, "channels": channels})
        for incident_id, channel_id in cursor.fetchall():
            found[incident_id].append(channel_id)
    return found
