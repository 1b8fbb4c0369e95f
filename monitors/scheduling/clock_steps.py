"""Get over a change of PostgreSQL's clock, by which all processes go (`core.clock`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from monitors import types
from monitors.locking import lock_monitors, write_columns
from monitors.metrics import CLOCK_STEPS
from monitors.models import LEASE_MARGIN, Monitor, MonitorState

logger = logging.getLogger(__name__)

TOLERANCE = timedelta(seconds=2)

_PAST = (
    *("slot_at", "claimed_at", "started_slot", "fault_since", "status_since", "failing_since"),
    *("last_checked_at", "last_ping_at", "last_signal_at", "bodies_since"),
)
"""Columns with times that have passed."""
_NOT_AFTER_NOW = ", ".join(
    f"{name} = CASE WHEN state.{name} > %(now)s THEN %(now)s ELSE state.{name} END" for name in _PAST
)

# A check that is due later than one interval from now keeps its place in the interval.
_SET_BACK = f"""
    WITH late AS (
        SELECT state.monitor_id
          FROM monitors_monitorstate AS state
          JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
         WHERE state.next_due_at > %(now)s + monitor.interval_sec * interval '1 second'
            OR {" OR ".join(f"state.{name} > %(now)s" for name in _PAST)}
         ORDER BY state.monitor_id
           FOR NO KEY UPDATE OF state
    )
    UPDATE monitors_monitorstate AS state
       SET {_NOT_AFTER_NOW},
           next_due_at = CASE
               WHEN state.claimed_at IS NOT NULL THEN
                   least(state.next_due_at, %(lease_end)s + monitor.timeout_ms * interval '1 millisecond')
               WHEN monitor.type = ANY(%(waiting)s::text[]) OR monitor.config->>'schedule' IS NOT NULL
                    OR state.next_due_at <= %(now)s + monitor.interval_sec * interval '1 second' THEN
                   state.next_due_at
               ELSE state.next_due_at - make_interval(secs => monitor.interval_sec::float8 * (
                   ceil(extract(epoch FROM state.next_due_at - %(now)s) / monitor.interval_sec) - 1)) END
      FROM late JOIN monitors_monitor AS monitor ON monitor.id = late.monitor_id
     WHERE state.monitor_id = late.monitor_id
"""  # noqa: S608 - names of columns
_EXTEND_LEASES = """
    WITH held AS (
        SELECT monitor_id FROM monitors_monitorstate WHERE claimed_at IS NOT NULL ORDER BY monitor_id FOR NO KEY UPDATE
    )
    UPDATE monitors_monitorstate AS state
       SET next_due_at = next_due_at + make_interval(secs => %(seconds)s),
           claimed_at = claimed_at + make_interval(secs => %(seconds)s)
      FROM held
     WHERE state.monitor_id = held.monitor_id
"""


on_set_back: list[Callable[[datetime], None]] = []
"""Correct the times of higher layers that lie too far in the future, in that transaction. Filled by them."""


def set_back(now: datetime, *, by: timedelta) -> None:
    """Get over a clock that was set back, in a transaction: nothing has happened yet in what is the future now.

    Otherwise nothing would be due until the clock comes to the times that were stored before.
    """
    logger.error("PostgreSQL's clock was set back by %.0f s: due times are computed again", by.total_seconds())
    CLOCK_STEPS.add(1, "back")
    lease_end = now + LEASE_MARGIN
    with connection.cursor() as cursor:
        cursor.execute(_SET_BACK, {"now": now, "lease_end": lease_end, "waiting": types.waiting()})
    waits = Q(monitor__type__in=types.waiting()) | Q(monitor__config__schedule__isnull=False)
    ahead = MonitorState.objects.filter(waits, next_due_at__gt=now, claimed_at=None)
    monitors = list(lock_monitors(ahead.values_list("pk", flat=True)).values())
    for monitor in monitors:
        _reschedule(monitor, now, by)
    write_columns([monitor.state for monitor in monitors], ["next_due_at", "armed_at"])
    for correct in on_set_back:
        correct(now)


def set_forward(before: datetime, now: datetime, *, by: timedelta) -> None:
    """Note that the clock was set forward since the tick at `before`, in a transaction. Leases of checks move with it.

    Otherwise running checks would be made again, and triggers be recorded as lost.
    """
    logger.error("PostgreSQL's clock was set forward by %.0f s, since %s", by.total_seconds(), before)
    CLOCK_STEPS.add(1, "forward")
    with connection.cursor() as cursor:
        cursor.execute(_EXTEND_LEASES, {"seconds": by.total_seconds()})


def _reschedule(monitor: Monitor, now: datetime, by: timedelta) -> None:
    """Recompute `next_due_at` of a locked monitor that waits for a ping or a time of its schedule."""
    state = monitor.state
    if monitor.kind.waits:
        if state.armed_at is not None and state.armed_at > now:
            state.armed_at = max(now, state.armed_at - by)
        if state.next_due_at is not None:
            state.next_due_at = min(state.next_due_at, monitor.ping_due_at() or state.next_due_at)
    elif monitor.schedule is not None and state.next_due_at is not None:
        state.next_due_at = min(state.next_due_at, monitor.schedule.next_after(now))
