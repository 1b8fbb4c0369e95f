"""Claim due monitors, return claims, and detect stops of the scheduler."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import F

from core.bulk import array
from monitors import types
from monitors.models import LEASE_MARGIN, MonitorState, SchedulerGap, SchedulerTick
from monitors.recording import fast_path

STOPPED_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one check of one monitor. The monitor's id and the number identify its result.

    `lost`: a scheduler fired the slot under an earlier claim, whose result is unknown. `again`: the lease of an
    earlier claim expired.
    """

    monitor_id: int
    number: int
    type: str = types.DEFAULT
    config_version: int = 1
    lost: bool = False
    again: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.monitor_id, self.number


# SKIP LOCKED lets any number of beats claim at once, each monitor going to one of them. After an expired lease the
# slot stays that of the first attempt, so that the next slot is counted from it.
_CLAIM = """
    UPDATE monitors_monitorstate AS state
       SET claim = state.claim + 1,
           slot_at = CASE WHEN state.claimed_at IS NULL THEN state.next_due_at ELSE state.slot_at END,
           claimed_at = %(now)s,
           next_due_at = %(margin_end)s + monitor.timeout_ms * interval '1 millisecond'
      FROM monitors_monitor AS monitor, (
            SELECT monitor_id,
                   coalesce(claimed_at IS NOT NULL AND started_slot = slot_at, false) AS lost,
                   claimed_at IS NOT NULL AS again
              FROM monitors_monitorstate
             WHERE next_due_at <= %(now)s
             ORDER BY next_due_at
             LIMIT %(limit)s
               FOR UPDATE SKIP LOCKED
           ) AS due
     WHERE state.monitor_id = due.monitor_id AND monitor.id = due.monitor_id
    RETURNING state.monitor_id, state.claim, monitor.type, monitor.config_version, due.lost, due.again
"""


# A check on demand does not move the schedule: the next slot is counted from the last one, as without this check.
_CLAIM_NOW = """
    UPDATE monitors_monitorstate AS state
       SET claim = state.claim + 1,
           slot_at = CASE WHEN state.claimed_at IS NULL AND state.next_due_at <= %(now)s THEN state.next_due_at
                          ELSE coalesce(state.slot_at, %(now)s) END,
           claimed_at = %(now)s,
           next_due_at = %(margin_end)s + monitor.timeout_ms * interval '1 millisecond'
      FROM monitors_monitor AS monitor
     WHERE state.monitor_id = ANY(%(ids)s::bigint[]) AND monitor.id = state.monitor_id
       AND monitor.enabled AND monitor.type = ANY(%(types)s)
    RETURNING state.monitor_id, state.claim
"""


def claim_due(now: datetime, *, limit: int) -> list[Claim]:
    """Claim at most `limit` due monitors, the most overdue first. Committed when this returns."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "margin_end": now + LEASE_MARGIN, "limit": limit})
        return [Claim(*row) for row in cursor.fetchall()]


def claim_now(monitor_ids: Collection[int], *, now: datetime) -> dict[int, int]:
    """Claim these monitors for a check on demand, and return the claims by monitor. Committed when this returns.

    Paused and deleted monitors, heartbeats and schedulers are left out. A running check continues; its result counts
    as the older of the two.
    """
    with transaction.atomic():
        # Lock in a separate statement: the next one then sees the changes of earlier lock holders.
        fast_path.lock_states(list(monitor_ids))
        with connection.cursor() as cursor:
            times = {"now": now, "margin_end": now + LEASE_MARGIN}
            cursor.execute(_CLAIM_NOW, {**times, "ids": array(monitor_ids), "types": types.polling()})
            return dict(cursor.fetchall())


def start_runs(claims: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Mark the slots of schedulers as fired before they are. Return the (monitor, claim) that are still to be fired.

    Committed when this returns, so no slot is fired twice, however often its message is delivered. A slot without a
    result is recorded as lost when its lease expires.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET started_slot = state.slot_at
              FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (monitor_id, claim)
             WHERE state.monitor_id = wanted.monitor_id
               AND state.claim = wanted.claim
               AND state.claimed_at IS NOT NULL
               AND (state.started_slot IS NULL OR state.started_slot < state.slot_at)
            RETURNING state.monitor_id, state.claim
            """,
            [[monitor_id for monitor_id, _ in claims], [claim for _, claim in claims]],
        )
        return set(cursor.fetchall())


def return_claims(claims: Collection[tuple[int, int]], *, now: datetime) -> None:
    """Give back (monitor, claim) pairs that will not be checked here. Their monitors are due at once.

    A scheduler's slot that was fired stays claimed, and is recorded as lost when its lease expires.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET next_due_at = least(state.slot_at, %s), claimed_at = NULL
              FROM unnest(%s::bigint[], %s::bigint[]) AS given (monitor_id, claim)
             WHERE state.monitor_id = given.monitor_id
               AND state.claim = given.claim
               AND state.claimed_at IS NOT NULL
               AND state.started_slot IS DISTINCT FROM state.slot_at
            """,
            [now, [monitor_id for monitor_id, _ in claims], [claim for _, claim in claims]],
        )


def tick(now: datetime) -> None:
    """Record a run of the scheduler. A long time since the last run is stored as a gap in the observed time."""
    with transaction.atomic():
        last, created = SchedulerTick.objects.select_for_update().get_or_create(id=1, defaults={"at": now})
        if created or last.at >= now:
            return
        if now - last.at > STOPPED_AFTER:
            SchedulerGap.objects.create(started_at=last.at, ended_at=now)
            _get_over(last.at, now)
        SchedulerTick.objects.filter(id=1).update(at=now)


def _get_over(start: datetime, end: datetime) -> None:
    """Adjust due times after Pulsekeeper was stopped.

    Deadlines of heartbeats move by the length of the stop, and missed slots of schedulers are skipped. Missed polls are
    made once, at once, like any overdue check.
    """
    due = MonitorState.objects.filter(next_due_at__gte=start, next_due_at__lte=end, claimed_at=None)
    moved = F("next_due_at") + (end - start)
    due.filter(monitor__type__in=types.waiting()).update(next_due_at=moved, armed_at=moved)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET next_due_at = state.next_due_at + make_interval(secs => monitor.interval_sec::float8 * (
                   1 + floor(extract(epoch FROM %(end)s - state.next_due_at) / monitor.interval_sec)))
              FROM monitors_monitor AS monitor
             WHERE monitor.id = state.monitor_id
               AND monitor.type = ANY(%(types)s)
               AND state.claimed_at IS NULL
               AND state.next_due_at BETWEEN %(start)s AND %(end)s
            """,
            {"start": start, "end": end, "types": types.firing()},
        )
