"""Edit a locked monitor and its state in memory. The caller writes the rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from checks.spec import Verdict
from monitors import configuration
from monitors.configuration import watched_domain
from monitors.models import DomainRegistration, Monitor, StatusChange
from monitors.stale import stale_since, unobserved
from monitors.types.schedule import schedule_of
from monitors.types.settings import MonitorConfig

MAX_MUTE_MINUTES = 10_080
SWITCHED = (
    *("next_due_at", "claimed_at", "fault", "fault_since", "armed_at"),
    *("fresh", "failures", "passes", "failing_since"),
)
"""Columns of a state that `switch` and `watch` may change."""
RECONFIGURED = (*SWITCHED, "cert_expires_at", "domain_expires_at")
"""Columns of a state that `reconfigure` may change."""
DEADLINE = ("interval_sec", "grace_sec", "max_duration_sec")
"""Settings of heartbeats that move their deadlines."""


def changes_domain(monitor: Monitor, config: MonitorConfig) -> bool:
    return watched_domain(config) != (monitor.registration and monitor.registration.name)


def reconfigure(
    monitor: Monitor,
    config: MonitorConfig,
    *,
    enabled: bool,
    registrations: Mapping[str, DomainRegistration],
    now: datetime,
) -> list[StatusChange]:
    """Apply the config and return the changes to store. `registrations` are locked, by domain, if it has a new one."""
    before, since = monitor.full_config, stale_since(monitor, now=now)
    monitor.full_config = config
    is_outdated = configuration.differs(before, config)
    if enabled != monitor.enabled:
        changes = switch(monitor, enabled=enabled, since=since, now=now)
    else:
        if is_outdated and not monitor.kind.waits:
            monitor.config_version += 1
        if enabled:
            _reschedule(monitor, before, config, since=since, is_outdated=is_outdated, now=now)
        changes = end_staleness(monitor, since=since, now=now)
    watch(monitor)
    # The old host's certificate and registration do not apply to another host.
    if monitor.kind.origin(before) != monitor.kind.origin(config):
        monitor.state.cert_expires_at = None
    if changes_domain(monitor, config):
        monitor.registration = registrations.get(watched_domain(config) or "")
        monitor.state.domain_expires_at = monitor.registration.expires_at if monitor.registration else None
    return changes


def switch(monitor: Monitor, *, enabled: bool, since: datetime | None, now: datetime) -> list[StatusChange]:
    """Pause or resume a monitor and return the changes to store.

    Pausing keeps the status; after resuming, the next result sets it as a first check does. Results in flight then
    belong to an older configuration. `since`: when the monitor became stale under the configuration before.
    """
    state = monitor.state
    changes = [] if since is None else unobserved(monitor, since=since, until=now)
    state.fault = state.fault_since = None
    monitor.enabled = enabled
    monitor.config_version += 1
    if enabled:
        state.fresh, state.failures, state.passes, state.failing_since = True, 0, 0, None
        if monitor.kind.fires and (state.slot_at is not None or monitor.schedule is not None):
            state.next_due_at = monitor.next_slot(state.slot_at or now, now=now)
        elif not monitor.kind.waits or monitor.ping_due_at() is not None:
            state.armed_at = max(now, state.armed_at or now) if monitor.kind.waits else None
            state.next_due_at, state.claimed_at = now, None
    else:
        state.next_due_at = state.claimed_at = None
    kind = StatusChange.Kind.RESUMED if enabled else StatusChange.Kind.PAUSED
    return [*changes, StatusChange(monitor=monitor, kind=kind, at=now, before=state.status, after=state.status)]


def end_staleness(monitor: Monitor, *, since: datetime | None, now: datetime) -> list[StatusChange]:
    """Return the changes to store after an edit: those of the stale period if a longer interval or timeout ended it.

    The check is still due. If it is not made, the next stale period begins now.
    """
    if since is None or stale_since(monitor, now=now) is not None:
        return []
    monitor.state.fault_since = now
    return unobserved(monitor, since=since, until=now)


def mute(monitor: Monitor, *, minutes: int, now: datetime) -> None:
    """Suppress down-detection and alerts for `minutes`, at most MAX_MUTE_MINUTES; 0 ends a mute."""
    if minutes == 0:
        if monitor.muted_until is not None and monitor.muted_until > now:
            # A deadline that passed during the mute counts from its end.
            monitor.state.armed_at = max(now, monitor.state.armed_at or now)
        monitor.muted_until = None
    else:
        monitor.muted_until = now + timedelta(minutes=min(minutes, MAX_MUTE_MINUTES))
    watch(monitor)


def arm_after_change(monitor: Monitor, *, now: datetime) -> datetime:
    """Return `armed_at` of a heartbeat whose deadlines changed.

    A new deadline that has passed counts from now, because the last ping and the start of a run came by the old
    settings. So does that of a ping which moved because the ping may have been lost.
    """
    armed_at = max(now, monitor.state.armed_at or now)
    ping, run = monitor.ping_deadline, monitor.run_deadline
    is_ping_over = ping is not None and (ping < now or armed_at > now)
    is_run_over = run is not None and run < now
    if not (is_ping_over or is_run_over):
        return armed_at
    deadlines = (
        monitor.ping_deadline_after(now) if is_ping_over else ping,
        now + monitor.run_patience if is_run_over else run,
    )
    return max(armed_at, min(filter(None, deadlines)))


def watch(monitor: Monitor) -> None:
    """Recompute `next_due_at` after the deadline of a heartbeat changed."""
    state = monitor.state
    if not monitor.kind.waits or not monitor.enabled or state.claimed_at is not None:
        return
    due_at = monitor.ping_due_at()
    if state.fresh:
        # Never pinged, or resumed: judge it at once, or at the end of the mute, which may be earlier now.
        if state.next_due_at is not None and due_at is not None:
            state.next_due_at = min(state.next_due_at, due_at)
    elif state.status != Verdict.DOWN or state.passes > 0:
        state.next_due_at = due_at


def _reschedule(
    monitor: Monitor,
    before: MonitorConfig,
    after: MonitorConfig,
    *,
    since: datetime | None,
    is_outdated: bool,
    now: datetime,
) -> None:
    """Update the due time after an edit: due at once if a probed setting changed, sooner if the interval is shorter.

    Another schedule counts from now on; a slot that is already due is kept.
    """
    state, schedule = monitor.state, schedule_of(after)
    is_rescheduled = schedule_of(before) != schedule
    if monitor.kind.waits:
        if is_rescheduled or any(before[name] != after[name] for name in DEADLINE):
            state.armed_at = arm_after_change(monitor, now=now)
    elif is_outdated and not monitor.kind.fires:  # an edit must not fire a trigger
        state.fault_since = state.fault_since or since  # it stays stale until a check ends
        state.next_due_at, state.claimed_at = now, None
    elif state.claimed_at is not None:
        return
    elif schedule is not None:
        if is_rescheduled and (state.next_due_at is None or state.next_due_at > now):
            state.next_due_at = schedule.next_after(now)
    elif is_rescheduled or after.interval_sec < before.interval_sec:
        soonest = now + timedelta(seconds=after.interval_sec)
        state.next_due_at = min(state.next_due_at or soonest, soonest)
