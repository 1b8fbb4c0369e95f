"""When a monitor is due, and who gets to check it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from monitors.models import LEASE_MARGIN, SchedulerGap, SchedulerTick

STOPPED_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to one check of one monitor: the two numbers that name its result."""

    monitor_id: int
    number: int


# SKIP LOCKED lets any number of beats claim at once, each monitor going to one of them. The slot stays
# that of the first try when a lease has run out, so that the next slot is counted from it.
_CLAIM = """
    UPDATE monitors_monitorstate AS state
       SET claim = state.claim + 1,
           slot_at = CASE WHEN state.claimed_at IS NULL THEN state.next_due_at ELSE state.slot_at END,
           claimed_at = %(now)s,
           next_due_at = %(margin_end)s + monitor.timeout_ms * interval '1 millisecond'
      FROM monitors_monitor AS monitor, (
            SELECT monitor_id
              FROM monitors_monitorstate
             WHERE next_due_at <= %(now)s
             ORDER BY next_due_at
             LIMIT %(limit)s
               FOR UPDATE SKIP LOCKED
           ) AS due
     WHERE state.monitor_id = due.monitor_id AND monitor.id = due.monitor_id
    RETURNING state.monitor_id, state.claim
"""


def claim_due(now: datetime, *, limit: int) -> list[Claim]:
    """Claim what is due, the longest overdue first, at most `limit`; committed when this returns."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "margin_end": now + LEASE_MARGIN, "limit": limit})
        return [Claim(*row) for row in cursor.fetchall()]


def next_slot(slot: datetime, *, interval_sec: int, now: datetime) -> datetime:
    """The first of `slot + k * interval` after `now`, k >= 1: lateness does not drift, missed slots stay missed."""
    interval = timedelta(seconds=interval_sec)
    return slot + interval * max(1, (now - slot) // interval + 1)


def tick(now: datetime) -> None:
    """Note that the scheduler runs; a long time since the last note is kept as a gap in what was observed."""
    with transaction.atomic():
        last, created = SchedulerTick.objects.select_for_update().get_or_create(id=1, defaults={"at": now})
        if created or last.at >= now:
            return
        if now - last.at > STOPPED_AFTER:
            SchedulerGap.objects.create(started_at=last.at, ended_at=now)
        SchedulerTick.objects.filter(id=1).update(at=now)
