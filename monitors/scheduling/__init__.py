"""When a monitor is due, and who gets to check it."""

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
    """The right to one check of one monitor: the two numbers that name its result.

    `lost`: a scheduler fired the slot under an earlier claim, whose result is unknown. `again`: there was an
    earlier claim, whose lease ran out.
    """

    monitor_id: int
    number: int
    type: str = types.DEFAULT
    config_version: int = 1
    lost: bool = False
    again: bool = False


# SKIP LOCKED lets any number of beats claim at once, each monitor going to one of them. The slot stays
# that of the first try when a lease has run out, so that the next slot is counted from it.
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


# Out of turn, so that the rhythm stays: the next slot is counted from the last one, as if nobody had asked.
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
    RETURNING state.monitor_id, state.claim, monitor.type, monitor.config_version
"""


def claim_due(now: datetime, *, limit: int) -> list[Claim]:
    """Claim what is due, the longest overdue first, at most `limit`; committed when this returns."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "margin_end": now + LEASE_MARGIN, "limit": limit})
        return [Claim(*row) for row in cursor.fetchall()]


def claim_now(monitor_ids: Collection[int], *, now: datetime) -> list[Claim]:
    """Claim these out of turn, because somebody wants to know; committed when this returns.

    Left out is what is paused or deleted, and whose check is not a look: heartbeats and schedulers. A check that is
    under way goes on; its result counts as the older of the two.
    """
    with transaction.atomic():
        fast_path.lock_states(
            list(monitor_ids)
        )  # by a statement of its own: the next one sees what the holders before us did
        with connection.cursor() as cursor:
            cursor.execute(
                _CLAIM_NOW,
                {
                    "now": now,
                    "margin_end": now + LEASE_MARGIN,
                    "ids": array(monitor_ids),
                    "types": types.polling(),
                },
            )
            return [Claim(*row) for row in cursor.fetchall()]


def start_runs(claims: Collection[Claim]) -> set[Claim]:
    """Mark the slots of schedulers as fired, before they are; returns those that are still to be fired.

    Committed when this returns: whatever happens from here on, no slot is fired a second time, however often
    its message is delivered. A slot whose result never comes is found lost when its lease runs out.
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
            [[claim.monitor_id for claim in claims], [claim.number for claim in claims]],
        )
        started = set(cursor.fetchall())
    return {claim for claim in claims if (claim.monitor_id, claim.number) in started}


def return_claims(claims: Collection[tuple[int, int]], *, now: datetime) -> None:
    """Give back (monitor, claim) that will not be checked here: due at once, for whoever comes.

    A slot of a scheduler that was fired stays claimed, and is found lost when its lease runs out.
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
    """Note that the scheduler runs; a long time since the last note is kept as a gap in what was observed."""
    with transaction.atomic():
        last, created = SchedulerTick.objects.select_for_update().get_or_create(id=1, defaults={"at": now})
        if created or last.at >= now:
            return
        if now - last.at > STOPPED_AFTER:
            SchedulerGap.objects.create(started_at=last.at, ended_at=now)
            _get_over(last.at, now)
        SchedulerTick.objects.filter(id=1).update(at=now)


def _get_over(start: datetime, end: datetime) -> None:
    """Handle a time in which Pulsekeeper was stopped: deadlines of heartbeats move by its length, and slots of
    schedulers are not made up. Polls that were missed are made once, at once, like any that is overdue.
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
