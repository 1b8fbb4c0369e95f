"""Turn status changes into incidents. The rows of StatusChange are the outbox, and this is its only consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.models import User
from checks.results.selectors import evidence_of
from checks.spec import Verdict
from core.bulk import insert_objects
from core.clock import to_ms
from core.db import Turns, lock_in_turn, try_advisory_lock
from core.errors import HistoryUnavailable
from incidents.models import FlappingSpell, Incident, IncidentEvent
from monitors.locking import write_columns
from monitors.models import StatusChange
from projects.models import Project

BATCH = 1_000
TOGETHER = 50
"""Changes of an account that are processed together: its alerts are then one message instead of several."""
_TURNS = Turns(together=TOGETHER)

# New incidents refer to them. Not locked at the end of the transaction, when deletions wait for its incidents.
_PARENTS = {"monitor__owner": User, "monitor__project": Project}

Type = IncidentEvent.Type
Resolution = Incident.Resolution


def unprocessed() -> QuerySet[StatusChange]:
    return StatusChange.objects.filter(processed_at=None)


def deleted() -> QuerySet[Incident]:
    """Return the open incidents of deleted monitors."""
    return Incident.objects.filter(monitor=None, resolved_at=None).exclude(monitor_public_id="")


def consume(now: datetime, *, slow: Callable[[Sequence[StatusChange]], None]) -> bool:
    """Process up to BATCH changes that no other process has locked. Return whether more may wait.

    `slow` is called in the same transaction with the changes from up to slow, which do not open incidents.
    """
    waiting = unprocessed()
    with transaction.atomic():
        locked, is_full = lock_in_turn(
            waiting,
            account="monitor__owner",
            ordered_by="monitor_id",
            most=BATCH,
            parents=_PARENTS,
            turns=_TURNS,
        )
        changes = list(waiting.filter(pk__in=locked).select_related("monitor", "monitor__project").order_by("id"))
        if changes:
            unresolved = Incident.objects.filter(
                monitor__in={change.monitor_id for change in changes}, resolved_at=None
            ).select_for_update(no_key=True)
            batch = _Batch({incident.monitor_id: incident for incident in unresolved.order_by("pk")})
            for change in changes:
                batch.process(change)
            batch.write()
            slow([change for change in changes if _became_slow(change)])
            StatusChange.objects.filter(pk__in=[change.pk for change in changes]).update(processed_at=now)
    return is_full


def close_deleted(now: datetime) -> None:
    """Resolve the incidents of deleted monitors. Monitors do not know incidents, so deleting one cannot resolve
    them."""
    with transaction.atomic():
        incidents = list(deleted().select_for_update(no_key=True, skip_locked=True).order_by("pk"))
        events = [_resolve(incident, Resolution.DELETED, now) for incident in incidents]
        write_columns(incidents, ["resolved_at", "resolution", "look_again_at"])
        insert_objects(events)


def follow_monitors() -> None:
    """Update owner and project of open incidents to those of their monitors, also for after a deletion."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE incidents_incident AS incident
               SET owner_id = monitor.owner_id, project_id = monitor.project_id
              FROM (
                    SELECT incident.id, monitor.owner_id, monitor.project_id
                      FROM incidents_incident AS incident
                      JOIN monitors_monitor AS monitor ON monitor.id = incident.monitor_id
                     WHERE incident.resolved_at IS NULL
                       AND (incident.owner_id, incident.project_id)
                           IS DISTINCT FROM (monitor.owner_id, monitor.project_id)
                       FOR NO KEY UPDATE OF incident SKIP LOCKED
                   ) AS monitor
             WHERE monitor.id = incident.id
            """
        )


def note_reasons(now: datetime) -> None:
    """Add a timeline entry to open outages that now fail for another reason."""
    with transaction.atomic():
        if not try_advisory_lock("reasons of incidents"):
            return
        with connection.cursor() as cursor:
            # The time limit restricts the query to the latest partitions.
            cursor.execute(_LATEST_REASONS, {"now": now})
            found = {row[0]: row[1:] for row in cursor.fetchall()}
        still_open = Incident.objects.filter(pk__in=found, resolved_at=None)
        incidents = list(still_open.select_for_update(no_key=True).order_by("pk"))
        events = []
        for incident in incidents:
            at, incident.reason_code, incident.detail = found[incident.pk]
            text = f"The reason changed: {incident.detail}"
            events.append(_event(incident, Type.REASON_CHANGED, text, at, reason_code=incident.reason_code))
        write_columns(incidents, ["reason_code", "detail"])
        insert_objects(events)


# Packed results are over an hour old: their reasons were noted when they came.
_LATEST_REASONS = """
    SELECT incident.id, latest.checked_at, latest.reason_code, latest.detail
      FROM incidents_incident AS incident
      JOIN monitors_monitorstate AS state ON state.monitor_id = incident.monitor_id
     CROSS JOIN LATERAL (
            SELECT checked_at, reason_code, detail
              FROM checks_checkresult AS result
             WHERE result.monitor_id = incident.monitor_id
               AND result.checked_at >= %(now)s - interval '1 day'
               AND date_bin('1 hour', result.checked_at, '2000-01-01 00:00+00')
                   = date_bin('1 hour', state.last_checked_at, '2000-01-01 00:00+00')
               AND result.checked_at <= state.last_checked_at
               AND result.verdict = 'down'
             ORDER BY checked_at DESC
             LIMIT 1
           ) AS latest
     WHERE incident.resolved_at IS NULL
       AND state.status = 'down'
       AND latest.checked_at > incident.confirmed_at
       AND latest.reason_code IS DISTINCT FROM incident.reason_code
"""


def _became_slow(change: StatusChange) -> bool:
    return change.kind == StatusChange.Kind.STATUS and change.after == Verdict.SLOW and change.before != Verdict.DOWN


@dataclass(slots=True)
class _Batch:
    """The open incidents of a batch of changes, by monitor, and what has to be written."""

    open: dict[int | None, Incident]
    created: list[Incident] = field(default_factory=list)
    confirmed: dict[tuple[int, int, datetime], Incident] = field(default_factory=dict)
    resolved: list[Incident] = field(default_factory=list)
    events: list[IncidentEvent] = field(default_factory=list)
    changed_at: dict[int, datetime] = field(default_factory=dict)
    paused: list[int] = field(default_factory=list)

    def process(self, change: StatusChange) -> None:
        """Process one change, in the order of changes."""
        if change.kind == StatusChange.Kind.PAUSED:
            self._close(change, Resolution.PAUSED)
            self.paused.append(change.monitor_id)
        elif change.kind == StatusChange.Kind.STATUS and change.after == Verdict.DOWN:
            self._begin(change)
        elif change.kind == StatusChange.Kind.STATUS:
            self._close(change, Resolution.RECOVERED)

    def _begin(self, change: StatusChange) -> None:
        if change.monitor_id in self.open:
            return
        monitor = change.monitor
        incident = Incident(
            owner_id=monitor.owner_id,
            project_id=monitor.project_id,
            monitor=monitor,
            monitor_public_id=monitor.public_id,
            name=monitor.name or monitor.url[:200] or monitor.public_id,
            reason_code=change.reason_code,
            detail=change.detail,
            claim=change.claim,
            started_at=min(change.failing_since or change.at, change.at),
            confirmed_at=change.at,
        )
        self.open[change.monitor_id] = incident
        self.created.append(incident)
        if change.claim is not None:
            self.confirmed[change.monitor_id, change.claim, change.at] = incident
        self.changed_at[change.monitor_id] = change.at
        text = f"It is down: {change.detail or change.reason_code}"
        self.events += [
            _event(incident, Type.FIRST_FAILURE, "The first check failed.", incident.started_at),
            _event(incident, Type.CONFIRMED, text, change.at, reason_code=change.reason_code),
        ]

    def _close(self, change: StatusChange, resolution: Resolution) -> None:
        incident = self.open.pop(change.monitor_id, None)
        if incident is None:
            return
        self.events.append(_resolve(incident, resolution, change.at))
        self.changed_at[change.monitor_id] = change.at
        if incident.pk is not None:
            self.resolved.append(incident)

    def write(self) -> None:
        found: dict[tuple[int, int], Any] = {}
        with suppress(HistoryUnavailable):  # of failures that are older than an hour; the alert matters more
            found = evidence_of(list(self.confirmed))
        for check, incident in self.confirmed.items():
            incident.evidence = found.get(check[:2])
        write_columns(self.resolved, ["resolved_at", "resolution", "look_again_at"])
        # Closed incidents are written before new ones: at most one per monitor is open.
        Incident.objects.bulk_create(self.created)
        insert_objects(self.events)
        active = FlappingSpell.objects.filter(monitor__in=[*self.changed_at, *self.paused], ended_at=None)
        spells = list(active.select_for_update(no_key=True).order_by("pk"))
        for spell in spells:
            spell.last_change_at = max(
                spell.last_change_at, self.changed_at.get(spell.monitor_id, spell.last_change_at)
            )
        write_columns(spells, ["last_change_at"])
        # A paused monitor has settled: it does not change until it is resumed.
        active.filter(monitor__in=self.paused).update(ended_at=Now())


_ENDINGS = {
    Resolution.RECOVERED: "It has recovered.",
    Resolution.PAUSED: "The monitor was paused.",
    Resolution.DELETED: "The monitor was deleted.",
}


def note_on_open(notes: Mapping[int, tuple[datetime, str]]) -> None:
    """Add what was noted about monitors, a time and a text, to the timelines of their open incidents."""
    incidents = Incident.objects.filter(monitor_id__in=notes, resolved_at=None)
    insert_objects(
        _event(incident, Type.TOO_OFTEN, text, at)
        for incident in incidents.order_by("pk")
        if incident.monitor_id is not None
        for at, text in [notes[incident.monitor_id]]
    )


def _resolve(incident: Incident, resolution: Resolution, at: datetime) -> IncidentEvent:
    """Resolve the incident, to be saved by the caller, and add its timeline entry."""
    incident.resolved_at = max(at, incident.confirmed_at or incident.started_at)
    incident.resolution = resolution
    incident.look_again_at = None
    lasted_ms = to_ms(incident.resolved_at) - to_ms(incident.started_at)
    data = {"resolution": resolution.value, "lasted_ms": lasted_ms}
    return _event(incident, Type.RESOLVED, _ENDINGS[resolution], incident.resolved_at, **data)


def _event(incident: Incident, kind: Type, text: str, at: datetime, **data: Any) -> IncidentEvent:
    return IncidentEvent(incident=incident, type=kind, text=text, at=at, data=data)
