"""Which notifications are sent for incidents, and when none are: mutes, windows, flapping, and parents that are down.

An incident stays pending until its last notification matches its current state. Each run either writes the notification
into the outbox and marks the incident, in one transaction, or records why not. When a silence ends, for any reason, the
next run notifies what is still true.

Several processes run it at once, in the order of locks in docs/develop/architecture.md.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils.text import capfirst

from alerts.batch import Notice, NotificationBatch, policy_of, put_events, silences_of, subscribed
from alerts.events import EventType
from alerts.selectors import Routes, routes_of
from core.clock import to_ms
from core.db import Turns, lock_in_turn
from core.hours import is_within, parse_hours
from core.isolation import TRY_AGAIN, Steps, run_isolated
from core.text import quote
from incidents import consuming, flapping, holding, windows
from incidents.consuming import note_on_open
from incidents.models import FlappingSpell, Incident, IncidentEvent, MaintenanceWindow
from monitors.filters import with_any_tag
from monitors.locking import write_columns
from monitors.models import DnsAlert, DnsAnswer, ExpiryWarning, PingExcess, StatusChange

BATCH = 2_000
MOST_ITEMS = 2_000
"""About how many items of messages a transaction writes for incidents: it locks their channels, and a sender that ends
waits for that with a connection of the pool."""
_TURNS = Turns(together=consuming.TOGETHER)
_LISTED_RECORDS = 3
_INSTANT = timedelta(microseconds=1)
_COLUMNS = (
    "announced_at",
    "acknowledgement_announced_at",
    "closing_announced_at",
    "quiet",
    "look_again_at",
    "caused_by",
)

Quiet = Incident.Quiet


def waiting_incidents(now: datetime) -> Sequence[QuerySet[Any]]:
    """Return queries of which one has a row if `notify_incidents` has something to do."""
    return _due(now), _over(now), FlappingSpell.objects.filter(ended_at=None), _acknowledged()


def notify_incidents(now: datetime) -> bool:
    """Send pending notifications of incidents, about MOST_ITEMS. Return whether more may wait.

    Look for status changes in between: many incidents of one account do not delay the first of another.
    """
    steps = Steps()
    steps.run(_end_windows, now)
    steps.run(_notify_settled, now)
    is_more = steps.run(_notify_due, now)
    steps.run(_notify_acknowledged, now)
    steps.finish()
    return bool(is_more)


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
            EventType.SLOW,
            change.at,
            {"reason_code": change.reason_code, "detail": change.detail},
        )
        for change in changes
        if change.pk not in repeated and silences.get(change.monitor_id) in (None, Quiet.FLAPPING)
    ]
    put_events(events, now=now)


def notify_expiries(now: datetime) -> None:
    """Notify of certificates and domains that expire soon. Muted monitors and those in a window wait."""
    waiting = ExpiryWarning.objects.filter(processed_at=None).filter(
        Q(monitor__muted_until=None) | Q(monitor__muted_until__lte=now)
    )
    with transaction.atomic():
        locked, _ = lock_in_turn(waiting, account="monitor__owner", most=BATCH)
        warnings = list(waiting.filter(pk__in=locked).select_related("monitor__project").order_by("pk"))
        if not warnings:
            return
        covered = windows.covered([warning.monitor_id for warning in warnings], now)
        notified = [warning for warning in warnings if warning.monitor_id not in covered]
        events = [
            (f"warning:{one.pk}", one.monitor, EventType(one.subject), now, {"expires_at": to_ms(one.expires_at)})
            for one in notified
        ]
        put_events(events, now=now)
        ExpiryWarning.objects.filter(pk__in=[warning.pk for warning in notified]).update(processed_at=now)


def notify_too_often(now: datetime) -> None:
    """Notify of jobs that run too often, except during silences, and note it on the timelines of open incidents."""
    waiting = PingExcess.objects.filter(processed_at=None)
    with transaction.atomic():
        locked, _ = lock_in_turn(waiting, account="monitor__owner", most=BATCH)
        excesses = list(waiting.filter(pk__in=locked).select_related("monitor__project").order_by("pk"))
        if not excesses:
            return
        note_on_open({excess.monitor_id: (excess.at, excess.text) for excess in excesses})
        silences = silences_of((excess.monitor for excess in excesses), now)
        events = [
            (f"too_often:{excess.pk}", excess.monitor, EventType.TOO_OFTEN, excess.at, {"detail": excess.text})
            for excess in excesses
            if excess.monitor.enabled and silences.get(excess.monitor_id) in (None, Quiet.FLAPPING)
        ]
        put_events(events, now=now)
        PingExcess.objects.filter(pk__in=[excess.pk for excess in excesses]).update(processed_at=now)


def notify_dns_changes(now: datetime) -> None:
    """Notify of DNS records that changed, at most once per monitor in FLAPPING_MINUTES, and not during silences.

    Changes that come sooner after an alert wait, and are sent together.
    """
    while _notify_some_dns_changes(now):
        pass


def _notify_some_dns_changes(now: datetime) -> bool:
    """Notify of up to BATCH answers that differ from those last alerted about. Return whether more may be due."""
    due = DnsAlert.objects.filter(due_at__lte=now)
    with transaction.atomic():
        locked, is_full = lock_in_turn(due, account="monitor__owner", most=BATCH)
        before = dict(due.filter(pk__in=locked).values_list("pk", "records"))
        if not before:
            return False
        # Read after the lock, which recorders take too: a later answer finds what this run leaves.
        answers = DnsAnswer.objects.filter(
            pk__in=before,
            monitor__enabled=True,
            owner_id=F("monitor__owner_id"),
            config_version=F("monitor__config_version"),
        )
        found = list(answers.select_related("monitor__project").order_by("pk"))
        silences = silences_of((answer.monitor for answer in found), now)
        routes = routes_of({answer.pk for answer in found})
        events, following = [], []
        for answer in found:
            detail = _explain_dns_change(set(before[answer.pk]), set(answer.records))
            is_silent = silences.get(answer.pk) not in (None, Quiet.FLAPPING)
            if not detail or is_silent or not subscribed(routes, answer.pk, EventType.DNS_CHANGE):
                continue
            source = f"dns_change:{answer.pk}:{to_ms(now)}"
            events.append((source, answer.monitor, EventType.DNS_CHANGE, answer.since, {"detail": detail}))
            due_at = now + timedelta(minutes=settings.FLAPPING_MINUTES)
            following.append(DnsAlert(monitor=answer.monitor, records=answer.records, due_at=due_at))
        put_events(events, now=now)
        DnsAlert.objects.bulk_update(following, ["records", "due_at"], batch_size=500)
        DnsAlert.objects.filter(pk__in=before.keys() - {alert.pk for alert in following}).delete()
    return is_full


def _explain_dns_change(before: set[str], after: set[str]) -> str:
    """Return the difference as a sentence, or an empty string if there is none."""
    changes = {"added": after - before, "removed": before - after}
    text = "; ".join(f"{verb} {_listed(sorted(records))}" for verb, records in changes.items() if records)
    return f"{capfirst(text)}." if text else ""


def _listed(records: Sequence[str]) -> str:
    shown = ", ".join(quote(record, limit=50) for record in records[:_LISTED_RECORDS])
    return shown if len(records) <= _LISTED_RECORDS else f"{shown} and {len(records) - _LISTED_RECORDS} more"


_OPENING = Q(resolved_at=None, announced_at=None, confirmed_at__isnull=False)
_CLOSING = Q(resolved_at__isnull=False, announced_at__isnull=False, closing_announced_at=None)
# Over before it was notified: the outage was short, or no worker ran.
_PASSED = Q(resolved_at__isnull=False, announced_at=None, quiet=None, monitor__isnull=False)
_PENDING = _OPENING | _CLOSING | _PASSED


def _due(now: datetime) -> QuerySet[Incident]:
    return Incident.objects.filter(_PENDING, Q(look_again_at=None) | Q(look_again_at__lte=now))


def _over(now: datetime) -> QuerySet[MaintenanceWindow]:
    return MaintenanceWindow.objects.filter(current_ends_at__lte=now)


def _acknowledged() -> QuerySet[Incident]:
    """Return the open incidents that were acknowledged, without a notification yet."""
    return Incident.objects.filter(
        resolved_at=None, announced_at__isnull=False, acknowledged_at__isnull=False, acknowledgement_announced_at=None
    )


def _notify_due(now: datetime) -> bool:
    """Send or suppress what is due, about MOST_ITEMS. Return whether more may be."""

    def put_off(failed: QuerySet[Incident]) -> None:
        failed.update(look_again_at=now + TRY_AGAIN)

    return run_isolated(partial(_notify_some, now), _due(now), most=BATCH, put_off=put_off)


@transaction.atomic
def _notify_some(now: datetime, keys: Collection[int] | None) -> bool:
    """Do it for incidents with these keys, or all.

    Earlier incidents of the same monitor are processed with it, also before `look_again_at`: no recovery is sent after
    the next outage.
    """
    pending = Incident.objects.filter(_PENDING)
    due = _due(now)
    if keys is not None:
        due = due.filter(pk__in=keys)
    locked, is_full = lock_in_turn(
        due,
        series=pending,
        account="owner",
        ordered_by="monitor_public_id",
        most=BATCH,
        turns=_TURNS if keys is None else None,
    )
    found = list(_with_monitors(pending.filter(pk__in=locked)))
    if not found:
        return False
    routes = routes_of({incident.monitor_id for incident in found if incident.monitor_id is not None})
    incidents = _in_turn(found, routes)
    opened = {one.monitor_id for one in incidents if one.is_open and one.monitor_id is not None}
    beginning = flapping.begins_to_flap(opened, now=now)
    batch = NotificationBatch(incidents, now, routes)
    for incident in incidents:
        if batch.waits(incident):
            continue
        reason = batch.silences.get(incident.monitor_id)
        if reason is not None:
            batch.suppress(incident, reason)
            continue
        if (hold := batch.holds.of.get(incident.pk)) is not None:
            batch.hold(incident, hold)
            continue
        if not incident.is_open:
            news = [EventType(str(incident.resolution))]  # they have the same names
            if incident.announced_at is None and policy_of(incident.monitor) is not None:
                news = []
                batch.note(incident, IncidentEvent.Type.ESCALATED, "It was over before the escalation began.")
            elif incident.announced_at is None:
                news.insert(0, EventType.DOWN)
            incident.announced_at, incident.closing_announced_at = incident.announced_at or now, now
            batch.notices += [Notice(incident, event_type) for event_type in news]
        elif incident.monitor_id in beginning:
            assert incident.monitor_id is not None
            assert incident.confirmed_at is not None
            flapping.begin(incident.monitor_id, changed_at=incident.confirmed_at, now=now)
            batch.announce(incident, EventType.FLAPPING)
        else:
            is_known = incident.quiet not in (None, Quiet.HELD)
            batch.announce(incident, EventType.STILL_DOWN if is_known else EventType.DOWN)
        if incident.acknowledged_at is not None:  # before its first alert
            incident.acknowledgement_announced_at = incident.acknowledgement_announced_at or now
        incident.quiet = incident.look_again_at = None
        if incident.is_open:
            incident.caused_by = None
    write_columns(incidents, _COLUMNS)
    batch.write()
    transaction.on_commit(partial(holding.check_parents, batch.holds.unchecked, now=now))
    return is_full or len(incidents) < len(found)


def _in_turn(incidents: Sequence[Incident], routes: Routes) -> list[Incident]:
    """Return the incidents of the next transaction, in their order: of each account about as many items.

    All incidents of a monitor stay together. An account with one channel is not behind those with fifty.
    """
    by_monitor: dict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        by_monitor[incident.monitor_public_id or incident.public_id].append(incident)
    items_of: Counter[int] = Counter()
    places: list[tuple[int, str, int]] = []
    for key, own in by_monitor.items():
        items = sum(max(1, len(routes.get(incident.monitor_id or 0, ()))) for incident in own)
        items_of[own[0].owner_id] += items
        places.append((items_of[own[0].owner_id], key, items))
    chosen: set[str] = set()
    total = 0
    for _, key, items in sorted(places):
        if chosen and total + items > MOST_ITEMS:
            break
        chosen.add(key)
        total += items
    return [incident for incident in incidents if (incident.monitor_public_id or incident.public_id) in chosen]


@transaction.atomic
def _notify_acknowledged(now: datetime) -> None:
    """Notify of acknowledgements. During a silence they are skipped for good."""
    new = _acknowledged()
    locked, _ = lock_in_turn(new, account="owner", most=BATCH)
    incidents = list(_with_monitors(new.filter(pk__in=locked)))
    if not incidents:
        return
    acknowledged = IncidentEvent.objects.filter(incident__in=incidents, type=IncidentEvent.Type.ACKNOWLEDGED)
    by = {event.incident_id: event.data.get("by") for event in acknowledged}
    batch = NotificationBatch(incidents, now)
    for incident in incidents:
        incident.acknowledgement_announced_at = now
        if batch.silences.get(incident.monitor_id) is None:
            batch.notices.append(Notice(incident, EventType.ACKNOWLEDGED, by=by.get(incident.pk)))
    write_columns(incidents, _COLUMNS)
    batch.write()


def _notify_settled(now: datetime) -> None:
    """Notify how each monitor has settled, and of nothing else that happened while it flapped."""
    spells = flapping.settled(now)
    if not spells:
        return
    unfinished = Q(resolved_at=None) | Q(announced_at__isnull=False, closing_announced_at=None)
    with transaction.atomic():
        locked = list(_locked(unfinished, monitor__in=[spell.monitor_id for spell in spells]))
        ended = flapping.end(spells, now=now)
        incidents = [incident for incident in locked if incident.monitor_id in ended]
        batch = NotificationBatch(incidents, now)
        last = {incident.monitor_id: incident for incident in incidents}
        for incident in incidents:
            incident.look_again_at = None
            reason = batch.silences.get(incident.monitor_id)
            if incident.is_open:
                if not batch.is_silent(incident) and not batch.waits(incident):
                    batch.announce(incident, EventType.STILL_DOWN)
                    incident.quiet = None
            elif last[incident.monitor_id] is not incident:
                incident.closing_announced_at = now
            elif reason is None:
                incident.closing_announced_at, incident.quiet = now, None
                batch.notices.append(Notice(incident, EventType.SETTLED))
        write_columns(incidents, _COLUMNS)
        batch.write()


def _end_windows(now: datetime) -> None:
    """Move windows that are over to their next occurrence, and notify of outages that have outlasted them."""
    over = _over(now)
    if not over.exists():
        return
    with transaction.atomic():
        outlasting = _outlasting(list(over.select_for_update(no_key=True).order_by("pk")))
        windows.roll_forward(now)
        incidents = list(_locked(Q(resolved_at=None), pk__in=outlasting))
        batch = NotificationBatch(incidents, now)
        for incident in incidents:
            if not batch.is_silent(incident):
                batch.notices.append(Notice(incident, EventType.STILL_DOWN))
        batch.write()


def _outlasting(over: Sequence[MaintenanceWindow]) -> set[int]:
    """Return the outages that were notified before a window that is over now, and are still open."""
    found: set[int] = set()
    for window in over:
        if not window.all_monitors:
            within = Q(monitor__in=window.monitors.all())
            if window.monitor_tag_keys:
                within |= with_any_tag(window.monitor_tag_keys, column="monitor__tag_keys")
        elif window.project_id is not None:
            within = Q(monitor__project=window.project_id)
        else:
            within = Q(monitor__owner=window.owner_id)
        incidents = Incident.objects.filter(within, resolved_at=None, announced_at__lt=window.current_starts_at)
        by_monitor = dict(incidents.values_list("monitor_id", "pk"))
        assert window.current_ends_at is not None
        covered = windows.covered(by_monitor, window.current_ends_at - _INSTANT)
        found |= {by_monitor[monitor_id] for monitor_id in covered}
    return found


def _with_monitors(incidents: QuerySet[Incident]) -> QuerySet[Incident]:
    """Return these incidents, oldest first, with what their notifications need."""
    policies = ("monitor__escalation_policy", "monitor__project__escalation_policy", "escalation")
    return incidents.select_related("monitor__project", "project", *policies).order_by("pk")


def _locked(condition: Q, **conditions: object) -> QuerySet[Incident]:
    """Lock these incidents, and return them for notifications, with monitors that are read after locking."""
    incidents = Incident.objects.filter(condition, **conditions)
    keys = list(incidents.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))
    return _with_monitors(incidents.filter(pk__in=keys))


_UNACKNOWLEDGED = Q(resolved_at=None, announced_at__isnull=False, acknowledged_at=None, monitor__isnull=False)
# Counted from the last message to the channel about the incident, or else (for a newer channel) from its first alert.
_OVERDUE = """
    SELECT wanted.incident_id, channel.id, channel.hours, channel.time_zone
      FROM unnest(%(incidents)s::bigint[], %(channels)s::bigint[]) AS wanted (incident_id, channel_id)
      JOIN incidents_incident AS incident ON incident.id = wanted.incident_id
      JOIN alerts_alertchannel AS channel ON channel.id = wanted.channel_id
     CROSS JOIN LATERAL (
            SELECT max(item.at) AS last_at, bool_or(item.delivery_id IS NULL) AS is_planned
              FROM alerts_deliveryitem AS item
             WHERE item.incident_id = incident.id AND item.channel_id = channel.id
           ) AS items
     WHERE coalesce(items.last_at, incident.announced_at)
           <= %(now)s - make_interval(hours => channel.remind_every_hours)
       AND items.is_planned IS NOT TRUE
     ORDER BY wanted.incident_id, channel.id
"""


def remind(now: datetime) -> None:
    """Remind of open outages that were notified, are not acknowledged, and are not silenced."""
    candidates = list(Incident.objects.filter(_UNACKNOWLEDGED).order_by("pk").values_list("pk", "monitor_id"))
    for start in range(0, len(candidates), BATCH):
        overdue = _overdue(dict(candidates[start : start + BATCH]), now)
        if not overdue:
            continue
        with transaction.atomic():
            incidents = list(_locked(_UNACKNOWLEDGED, pk__in=overdue))
            # Again under the lock: another process may have reminded.
            channels = _overdue({incident.pk: incident.monitor_id for incident in incidents}, now)
            batch = NotificationBatch(incidents, now)
            for incident in incidents:
                if incident.pk in channels and not batch.is_silent(incident):
                    batch.notices.append(Notice(incident, EventType.REMINDER, channel_ids=channels[incident.pk]))
            batch.write()


def _overdue(monitors: Mapping[int, int | None], now: datetime) -> dict[int, list[int]]:
    """Return the channels to remind, by incident. Those outside of their hours are reminded when these begin."""
    routes = routes_of({monitor_id for monitor_id in monitors.values() if monitor_id is not None})
    wanted = [
        (incident_id, channel_id)
        for incident_id, monitor_id in monitors.items()
        if monitor_id is not None
        for channel_id in subscribed(routes, monitor_id, EventType.REMINDER)
    ]
    incidents, channels = [incident_id for incident_id, _ in wanted], [channel_id for _, channel_id in wanted]
    with connection.cursor() as cursor:
        cursor.execute(_OVERDUE, {"now": now, "incidents": incidents, "channels": channels})
        rows = cursor.fetchall()
    found: dict[int, list[int]] = defaultdict(list)
    for incident_id, channel_id, hours, zone in rows:
        if is_within(parse_hours(json.loads(hours)), zone, now):
            found[incident_id].append(channel_id)
    return found
