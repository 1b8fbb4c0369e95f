"""Changes of a monitor's schedule and mode: pause, resume, mute, reschedule, make due.

They change rows in memory. The caller has locked the monitor's state and writes both rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from checks.spec import Verdict
from monitors import types
from monitors.models import Monitor, MonitorState, StatusChange, deadline_of
from monitors.state import next_slot
from monitors.types.settings import MonitorConfig

MAX_MUTE_MINUTES = 10_080


def switch(monitor: Monitor, state: MonitorState, *, enabled: bool, interval_sec: int, now: datetime) -> StatusChange:
    """Pause or resume a monitor and return the change to store.

    Pausing keeps the status; after resuming, the next result sets it as a first check does. Results in flight then
    belong to an older configuration.
    """
    monitor.enabled = enabled
    monitor.config_version += 1
    if enabled:
        state.fresh, state.failures, state.passes, state.failing_since = True, 0, 0, None
        if monitor.kind.fires and state.slot_at is not None:
            state.next_due_at = next_slot(state.slot_at, interval_sec=interval_sec, now=now)
        elif not monitor.kind.waits or state.last_ping_at is not None:
            state.armed_at = now if monitor.kind.waits else None
            make_due(state, now)
    else:
        state.next_due_at = state.claimed_at = None
    return StatusChange(
        monitor=monitor,
        kind=StatusChange.Kind.RESUMED if enabled else StatusChange.Kind.PAUSED,
        at=now,
        before=state.status,
        after=state.status,
    )


def mute(monitor: Monitor, state: MonitorState, *, minutes: int, now: datetime) -> None:
    """Mute for `minutes`, at most MAX_MUTE_MINUTES; 0 ends a mute."""
    if minutes == 0:
        if monitor.muted_until is not None and monitor.muted_until > now:
            state.armed_at = now  # a deadline that passed during the mute counts from its end
        monitor.muted_until = None
    else:
        monitor.muted_until = now + timedelta(minutes=min(minutes, MAX_MUTE_MINUTES))
    watch(monitor, state)


def reschedule(
    state: MonitorState, before: MonitorConfig, after: MonitorConfig, *, probed_anew: bool, now: datetime
) -> None:
    """Update the schedule after an edit: due at once if a probed setting changed, sooner if the interval is shorter."""
    kind = types.get(after.type)
    if kind.waits:
        if (before.interval_sec, before["grace_sec"]) != (after.interval_sec, after["grace_sec"]):
            state.armed_at = now
    elif probed_anew and not kind.fires:  # an edit must not fire a trigger
        make_due(state, now)
    elif after.interval_sec < before.interval_sec and state.claimed_at is None:
        soonest = now + timedelta(seconds=after.interval_sec)
        state.next_due_at = min(state.next_due_at or soonest, soonest)


def watch(monitor: Monitor, state: MonitorState) -> None:
    """Recompute `next_due_at` after the deadline of a heartbeat changed."""
    if not monitor.kind.waits or not monitor.enabled or state.claimed_at is not None:
        return
    due_at = deadline_of(monitor, state).due_at
    if state.fresh:
        # Never pinged, or resumed: judge it at once, or at the end of the mute, which may be earlier now.
        if state.next_due_at is not None and due_at is not None:
            state.next_due_at = min(state.next_due_at, due_at)
    elif state.status != Verdict.DOWN or state.passes > 0:
        state.next_due_at = due_at


def make_due(state: MonitorState, now: datetime) -> None:
    """Make the monitor due at once. A running check loses its claim."""
    state.next_due_at, state.claimed_at = now, None
