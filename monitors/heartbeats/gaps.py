"""Hold back missed deadlines while the pings of most accounts are missing (`monitors.heartbeats.collapse`).

Deadlines move after such a gap, and after a stop of Pulsekeeper.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from core.db import advisory_lock
from monitors import types
from monitors.heartbeats import collapse
from monitors.heartbeats.collapse import DAY, WINDOW
from monitors.locking import lock_monitors, write_columns
from monitors.models import LEASE_MARGIN, Monitor, PingGap

logger = logging.getLogger(__name__)

_LONGEST_LEASE = LEASE_MARGIN + timedelta(minutes=1)

# The deadline of a heartbeat, which slot_at keeps while it is claimed or held back. A ping is expected `grace` earlier.
_WATCHED = """
      FROM monitors_monitorstate AS state
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
      LEFT JOIN monitors_pinggap AS gap ON gap.ended_at IS NULL
     CROSS JOIN LATERAL (
           SELECT CASE WHEN state.claimed_at IS NOT NULL OR state.armed_at = gap.held_until
                       THEN state.slot_at ELSE state.next_due_at END,
                  (monitor.config->>'grace_sec')::bigint * interval '1 second'
           ) AS due (at, grace)
     WHERE monitor.type = ANY(%(types)s::text[])
       AND monitor.enabled
"""
# Before a mute ends, and after a start, it is unknown when a signal is expected.
_AWAITED = """
    state.status = 'up' AND state.run_started_at IS NULL AND due.at - due.grace <= %(now)s
    AND (monitor.muted_until IS NULL OR monitor.muted_until < due.at - due.grace)
"""

# Reads only the start of the index `state_due`, which holds few heartbeats while most of them ping.
_ABOUT_TO_MISS = f"""
    SELECT count(*), count(DISTINCT monitor.owner_id)
    {_WATCHED}
       AND state.next_due_at <= %(lease_end)s
       AND due.at <= %(end)s
       AND {_AWAITED}
"""

# Reads all heartbeats once. A silent one is expected again after each interval.
_ACCOUNTS = f"""
    SELECT silent, pinged, last_ping_at
      FROM (
           SELECT count(*) FILTER (WHERE is_silent) AS silent,
                  count(*) FILTER (WHERE NOT is_silent AND last_ping_at > %(start)s) AS pinged,
                  max(last_ping_at) AS last_ping_at
             FROM (
                  SELECT monitor.owner_id, state.last_ping_at,
                         coalesce({_AWAITED}, false) AND (
                             due.at - due.grace > %(start)s
                             OR monitor.config->>'schedule' IS NULL AND mod(
                                 extract(epoch FROM %(now)s - (due.at - due.grace)), monitor.interval_sec
                             ) < %(window_sec)s
                         ) AS is_silent
                  {_WATCHED}
                     AND state.last_ping_at IS NOT NULL
                  ) AS heartbeat (owner_id, last_ping_at, is_silent)
            GROUP BY owner_id
           ) AS account
     WHERE silent + pinged > 0
"""  # noqa: S608

# Deadlines that passed in the gap, or whose ping it swallowed, and those that were held back until a time in it.
_AFFECTED = f"""
    {_WATCHED}
       AND state.next_due_at >= %(start)s
       AND (due.at >= %(start)s AND due.at - due.grace <= %(end)s
            OR state.claimed_at IS NULL AND state.next_due_at <= %(end)s)
       AND (state.status IS DISTINCT FROM 'down' OR state.passes > 0)
"""

_AFFECTED_KEYS = f"SELECT state.monitor_id {_AFFECTED}"

# The next ping comes after a multiple of the interval, so the deadline moves by at least that. If no ping came since it
# moved, it moves by the length of the gap only: not every gap may excuse a dead job. Locked in key order, as always.
_MOVE = f"""
    WITH late AS (
        SELECT state.monitor_id, monitor.muted_until, state.armed_at IS NOT DISTINCT FROM due.at AS moved,
               due.at + greatest(
                   %(end)s - %(start)s,
                   CASE WHEN monitor.config->>'schedule' IS NULL AND state.armed_at IS DISTINCT FROM due.at
                   THEN monitor.interval_sec * interval '1 second' * (
                       1 + floor(extract(epoch FROM %(end)s - (due.at - due.grace)) / monitor.interval_sec)) END
               ) AS due_at
        {_AFFECTED}
         ORDER BY state.monitor_id
           FOR NO KEY UPDATE OF state
    )
    UPDATE monitors_monitorstate AS state
       SET armed_at = late.due_at, next_due_at = greatest(late.due_at, late.muted_until), claimed_at = NULL
      FROM late
     WHERE state.monitor_id = late.monitor_id
    RETURNING state.monitor_id, late.moved
"""  # noqa: S608


def current(now: datetime) -> PingGap | None:
    """Return the gap in which deadlines are held back now, after a deadline was missed. It may begin with this one.

    In the transaction of the sweep: the gap begins with the first deadline that it holds back.
    """
    # Asked first: a gap that another sweep begins meanwhile makes them fewer.
    ((heartbeats, accounts),) = _fetch(_ABOUT_TO_MISS, _times(now))
    many = heartbeats >= collapse.LEAST_HEARTBEATS and accounts >= collapse.LEAST_ACCOUNTS
    gap = _open_gap() or (_begin(now) if many else None)
    return gap if gap is not None and now < gap.held_until else None


def watch(now: datetime) -> None:
    """End the open gap if most pings arrive again, and move the deadlines that it affected."""
    if not PingGap.objects.filter(ended_at=None).exists():
        return
    with transaction.atomic():
        # Another dispatcher may be at it.
        gap = PingGap.objects.select_for_update(skip_locked=True).filter(ended_at=None).first()
        if gap is None or not (collapse.has_returned(_accounts(now)) or now >= gap.started_at + DAY):
            return
        moved = move_deadlines(gap.started_at, now)
        gap.ended_at = now
        gap.save(update_fields=["ended_at"])
    logger.warning("pings arrive again after %s: %d deadlines were moved", now - gap.started_at, moved)


def affected(start: datetime, end: datetime) -> list[int]:
    """Return the heartbeats whose deadlines `move_deadlines` would move."""
    return [key for (key,) in _fetch(_AFFECTED_KEYS, {"types": types.waiting(), "start": start, "end": end})]


def move_deadlines(start: datetime, end: datetime) -> int:
    """Move the deadlines of pings that may have been lost between `start` and `end`. Return their number.

    They move by that time, and on to the next expected ping, because a job does not repeat a ping that was lost. Those
    that moved before, and had no ping since, move only by that time.
    """
    moved = _fetch(_MOVE, {"types": types.waiting(), "start": start, "end": end})
    first = [key for key, has_moved in moved if not has_moved]
    monitors = Monitor.objects.filter(pk__in=first).exclude(config__schedule=None)
    scheduled = lock_monitors(monitors.values_list("pk", flat=True)).values()
    for monitor in scheduled:
        if monitor.schedule is not None:
            due_at = monitor.ping_deadline_after(end)
            monitor.state.armed_at = max(due_at, monitor.state.armed_at or due_at)
            monitor.state.next_due_at = monitor.ping_due_at()
    write_columns([monitor.state for monitor in scheduled], ["armed_at", "next_due_at"])
    return len(moved)


def _open_gap() -> PingGap | None:
    return PingGap.objects.filter(ended_at=None).first()


def _begin(now: datetime) -> PingGap | None:
    """Begin a gap if most pings are missing."""
    accounts = _accounts(now)
    if not collapse.has_collapsed(accounts):
        # Without the lock, which would make sweeps wait for each other while many miss, but not most.
        return _open_gap()
    advisory_lock("ping gap")
    if gap := _open_gap():
        return gap
    past = PingGap.objects.filter(ended_at__gt=now - DAY)
    held = [(gap.started_at, min(gap.ended_at or now, gap.held_until)) for gap in past]
    started_at, held_until = collapse.began_at(accounts, now=now), collapse.held_until(held, now=now)
    gap = PingGap.objects.create(started_at=started_at, held_until=held_until)
    silent = sum(account.silent for account in accounts)
    message = "most pings are missing: %d heartbeats of %d accounts in a minute, deadlines are held back until %s"
    values = silent, sum(account.silent > 0 for account in accounts), gap.held_until
    transaction.on_commit(lambda: logger.error(message, *values))
    return gap


def _accounts(now: datetime) -> list[collapse.Account]:
    return [collapse.Account(*row) for row in _fetch(_ACCOUNTS, _times(now))]


def _times(now: datetime) -> dict[str, Any]:
    return {
        "types": types.waiting(),
        "now": now,
        "start": now - WINDOW,
        "end": now + WINDOW,
        "lease_end": now + _LONGEST_LEASE,
        "window_sec": WINDOW.total_seconds(),
    }


def _fetch(statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
