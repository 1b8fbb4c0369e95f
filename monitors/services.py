"""Operations on monitors. Each function is one transaction; `projects.access` decides who may call it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from accounts.models import Plan, User
from checks.spec import CheckSpec, Verdict
from core.egress import literal_address
from core.errors import MonitorLimit, NotFound, ValidationFailed
from core.ids import random_text
from core.outbound import guard
from monitors import configuration, locking, types
from monitors.configuration import config_columns, watched_domain
from monitors.expiry.registrations import lock_registration
from monitors.heartbeats.log import hide_earlier
from monitors.models import LEASE_MARGIN, DomainRegistration, Monitor, MonitorState, StatusChange
from monitors.selectors import get_monitor, list_monitors
from monitors.slots import refill_slots
from monitors.stale import stale_since, unobserved
from monitors.types.schedule import schedule_of
from monitors.types.settings import MonitorConfig
from projects import access, log, placement
from projects.access import Caller
from projects.models import Project

before_monitors_deleted: list[Callable[[Collection[int]], None]] = []
"""Hooks that lock rows of higher layers, in key order, before these monitors are deleted."""

FIRST_CLAIM = 1
MAX_MUTE_MINUTES = 10_080
SWITCHED = (
    "next_due_at",
    "claimed_at",
    "fault",
    "fault_since",
    "armed_at",
    "fresh",
    "failures",
    "passes",
    "failing_since",
)
"""Columns of a state that `switch` and `watch` may change."""
RECONFIGURED = (*SWITCHED, "cert_expires_at", "domain_expires_at")
"""Columns of a state that `reconfigure` may change."""
DEADLINE = ("interval_sec", "grace_sec", "max_duration_sec")
"""Settings of heartbeats that move their deadlines."""
CONFIGURED = ("enabled", "config_version", "registration", *MonitorConfig.columns, "config", "header_values")
"""Columns of a monitor that `reconfigure` may change."""


def permits_host(host: str) -> bool:
    """Return whether probes may connect to this host if it is a literal address. Names are checked at the socket."""
    address = literal_address(host)
    return address is None or guard().permits(address)


def config_of(caller: Caller, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that creating from `given` would store, for a test run."""
    with transaction.atomic():
        _, owner = placement.place(caller, given)
    return complete(given, owner.plan)


def config_of_change(caller: Caller, public_id: str, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that a PATCH of `given` would leave, to test it before it is saved.

    Stored header values are used where that PATCH would keep them.
    """
    monitor = get_monitor(caller, public_id)
    owner = monitor.owner
    if "project_id" in given:
        with transaction.atomic():
            _, owner = placement.move(caller, given, project=monitor.project, owner=owner)
    return _patched(monitor, given, owner=owner)


def complete(given: Mapping[str, Any], plan: Plan) -> MonitorConfig:
    """Return a new monitor's config with the interval limits of the owner's plan. Raises ValidationFailed."""
    return configuration.complete(
        given, floor_sec=plan.min_interval_sec, default_sec=plan.default_interval_sec, permits_host=permits_host
    )


def test_spec(config: MonitorConfig) -> CheckSpec:
    """Return the spec of a test run. Raises ValidationFailed for a heartbeat, which has nothing to test."""
    kind = types.get(config.type)
    if kind.waits:
        raise ValidationFailed(f"a {kind.name} is pinged, so there is nothing to test.", field="type")
    return kind.spec(config, run_id=f"test-{random_text(10)}")


def create_monitor(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> Monitor:
    """Create a monitor whose first check, if it has one, is already claimed as FIRST_CLAIM by the caller.

    If that check is never made, the lease expires and the monitor is due like any other.
    """
    with transaction.atomic():
        project, owner = placement.place(caller, given)
        owner = lock_owner(owner)
        config = complete(given, owner.plan)
        enforce_quota(owner)
        registration = lock_registration(watched_domain(config), now=now)
        monitor = Monitor.objects.create(
            owner=owner, project=project, registration=registration, created_at=now, **config_columns(config)
        )
        state = MonitorState(monitor=monitor, domain_expires_at=registration.expires_at if registration else None)
        if monitor.schedule is not None and monitor.kind.fires:
            state.next_due_at = monitor.schedule.next_after(now)
        elif not monitor.kind.waits:
            state.claim, state.claimed_at, state.slot_at = FIRST_CLAIM, now, now
            state.next_due_at = now + timedelta(milliseconds=config.timeout_ms) + LEASE_MARGIN
        state.save(force_insert=True)
        refill_slots([monitor])
    return monitor


def has_first_check(given: Mapping[str, Any]) -> bool:
    """Return whether the new monitor is checked at once. A heartbeat waits for a ping, a schedule for its time."""
    return not types.get(given.get("type", types.DEFAULT)).waits and not given.get("schedule")


def release_first_claim(monitor: Monitor, *, now: datetime) -> None:
    """Make the first check due after no worker made it in time, so that it need not wait for the lease to expire."""
    MonitorState.objects.filter(pk=monitor.pk, claim=FIRST_CLAIM, claimed_at__isnull=False, started_slot=None).update(
        next_due_at=now
    )


def _patched(monitor: Monitor, given: Mapping[str, Any], *, owner: User) -> MonitorConfig:
    """Return the config that a PATCH leaves if `owner` owns the monitor. A new owner does not get the secrets."""
    stored = monitor.full_config
    if owner.pk != monitor.owner_id:
        stored = configuration.without_secrets(stored, moved=True)
    return configuration.patch(stored, given, floor_sec=owner.plan.min_interval_sec, permits_host=permits_host)


def move_of(monitor: Monitor, project: Project | None, owner: User) -> log.Move:
    """Return a move to another owner for the audit log, without a heartbeat's id, the secret of its ping URL."""
    target_id = "" if monitor.kind.has_secret_id else monitor.public_id
    return log.Move(target_id, monitor.name, monitor.project, monitor.owner, project, owner)


def update_monitor(caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime) -> Monitor:
    """Apply the given fields, validated as the merged monitor.

    Raises Forbidden for a move to another owner without the right to give the monitor away. Such a move drops its
    secrets; header values are also dropped when the request goes to another server (`configuration.patch`).
    """
    with transaction.atomic():
        monitor = _lock(caller, public_id)
        project, owner = (monitor.project, monitor.owner)
        if "project_id" in given:
            project, owner = placement.move(caller, given, project=project, owner=owner)
            if owner.pk != monitor.owner_id:
                owner = lock_owner(owner)
                enforce_quota(owner)
                log.record_moves(caller, [move_of(monitor, project, owner)])
                hide_earlier([monitor], now=now)
        config = _patched(monitor, given, owner=owner)
        changes = reconfigure(
            monitor,
            config,
            enabled=given.get("enabled", monitor.enabled),
            registration_of=partial(lock_registration, now=now),
            now=now,
        )
        monitor.project, monitor.owner = project, owner
        # Write the project only if the caller moves the monitor: the present one may be deleted concurrently.
        moved = ["project", "owner", "owned_since"] if "project_id" in given else []
        monitor.save(update_fields=[*CONFIGURED, *moved])
        monitor.state.save(update_fields=RECONFIGURED)
        refill_slots([monitor])
        StatusChange.objects.bulk_create(changes)
    return monitor


def reconfigure(
    monitor: Monitor,
    config: MonitorConfig,
    *,
    enabled: bool,
    registration_of: Callable[[str | None], DomainRegistration | None],
    now: datetime,
) -> list[StatusChange]:
    """Apply the config to a locked monitor. Return the changes to store.

    Changes rows in memory: the caller writes the monitor, the columns RECONFIGURED of its state, and the changes.
    `registration_of` returns a domain's registration, locked until the transaction ends.
    """
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
    domain = watched_domain(config)
    if domain != (monitor.registration and monitor.registration.name):
        monitor.registration = registration_of(domain)
        monitor.state.domain_expires_at = monitor.registration.expires_at if monitor.registration else None
    return changes


# These change a locked monitor and its state in memory, which the caller writes.


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
    """Mute for `minutes`, at most MAX_MUTE_MINUTES; 0 ends a mute."""
    if minutes == 0:
        if monitor.muted_until is not None and monitor.muted_until > now:
            # A deadline that passed during the mute counts from its end.
            monitor.state.armed_at = max(now, monitor.state.armed_at or now)
        monitor.muted_until = None
    else:
        monitor.muted_until = now + timedelta(minutes=min(minutes, MAX_MUTE_MINUTES))
    watch(monitor)


def arm_after_change(monitor: Monitor, *, now: datetime) -> datetime:
    """Return `armed_at` of a heartbeat whose schedule changed.

    The last ping came by the old schedule. If the new deadline after it has passed, or the old one moved because the
    ping may have been lost, it counts as if it came now.
    """
    deadline, armed_at = monitor.ping_deadline, max(now, monitor.state.armed_at or now)
    if deadline is None or (deadline > now and armed_at == now):
        return armed_at
    return max(armed_at, monitor.ping_deadline_after(now))


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
        is_moved = any(before[name] != after[name] for name in DEADLINE)
        if is_rescheduled or (is_moved and state.armed_at is not None and state.armed_at > now):
            state.armed_at = arm_after_change(monitor, now=now)
        elif is_moved:
            state.armed_at = now
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


def mute_monitor(caller: Caller, public_id: str, *, minutes: int, now: datetime) -> Monitor:
    """Suppress down-detection and alerts for that long, at most MAX_MUTE_MINUTES; 0 ends a mute."""
    if minutes < 0:
        raise ValidationFailed("must be 0 or more.", field="minutes")
    with transaction.atomic():
        monitor = _lock(caller, public_id)
        mute(monitor, minutes=minutes, now=now)
        monitor.save(update_fields=["muted_until"])
        monitor.state.save(update_fields=["next_due_at", "armed_at"])
    return monitor


def delete_monitor(caller: Caller, public_id: str) -> None:
    """Delete a monitor at once. Its results become inaccessible; checks.results.retention removes them soon after."""
    with transaction.atomic():
        delete_locked([_lock(caller, public_id).pk])


def delete_all_of(user: User) -> None:
    """Delete all monitors of an account. Their states are locked in the order in which results are recorded."""
    owned = Monitor.objects.filter(owner=user)
    locking.lock_monitors(owned.values_list("pk", flat=True), owned.none())
    delete_locked(list(owned.values_list("pk", flat=True)))


def delete_locked(ids: Collection[int]) -> None:
    """Delete monitors whose states are locked. Lock what workers lock of them first, in the order of workers."""
    changes = StatusChange.objects.filter(monitor__in=ids, processed_at=None)
    list(changes.select_for_update().order_by("pk").values_list("pk"))
    for lock in before_monitors_deleted:
        lock(ids)
    Monitor.objects.filter(pk__in=ids).delete()


def _lock(caller: Caller, public_id: str) -> Monitor:
    """Return a monitor with its state locked. That lock serializes PATCH, recording and deletion."""
    key = get_monitor(caller, public_id).pk
    monitor = locking.lock_monitors([key], list_monitors(caller)).get(key)
    if monitor is None:
        raise NotFound
    return monitor


def lock_monitors(caller: Caller, public_ids: Collection[str]) -> dict[str, Monitor]:
    """Return those monitors that the caller can access, by id, locked against deletion until the transaction ends.

    Take this lock before that of a project, as changes and deletions of monitors do.
    """
    if not public_ids:
        return {}
    visible = access.accessible(caller, Monitor.objects.filter(public_id__in=public_ids))
    states = MonitorState.objects.select_for_update(no_key=True).filter(pk__in=visible.values("pk"))
    list(states.order_by("pk").values_list("pk"))
    return {monitor.public_id: monitor for monitor in visible}


def lock_owner(owner: User) -> User:
    """Lock the owner's row and return it with its current plan.

    Concurrent creations then count against the quota one after the other, and the plan's minimum interval also applies
    during a change of plan.
    """
    locked = User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if locked.plan_id == owner.plan_id:
        locked.plan = owner.plan  # already loaded with the owner
    return locked


def enforce_quota(owner: User, *, count: int = 1) -> None:
    """Raise MonitorLimit if `count` more monitors exceed the plan's limit. The caller has locked the owner's row."""
    limit = owner.plan.monitor_limit
    if limit is not None and Monitor.objects.filter(owner=owner).count() + count > limit:
        raise MonitorLimit(limit=limit)
