"""Operations on monitors. Each function is one transaction; `projects.access` decides who may call it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts.models import Plan, User
from checks.spec import CheckSpec
from core.db import get_or_not_found
from core.egress import literal_address
from core.errors import MonitorLimit, ValidationFailed
from core.ids import random_text
from core.outbound import guard
from monitors import configuration, types
from monitors.configuration import watched_domain
from monitors.expiry.registrations import lock_registration
from monitors.lifecycle import mute, reschedule, switch, watch
from monitors.models import (
    LEASE_MARGIN,
    DomainRegistration,
    Monitor,
    MonitorState,
    StatusChange,
    config_columns,
)
from monitors.selectors import get_monitor
from monitors.types.settings import MonitorConfig
from projects import access, log, placement
from projects.access import Caller
from projects.models import Project

FIRST_CLAIM = 1
RECONFIGURED = (
    "next_due_at",
    "claimed_at",
    "armed_at",
    "fresh",
    "failures",
    "passes",
    "failing_since",
    "cert_expires_at",
    "domain_expires_at",
)
"""Columns of a state that `reconfigure` may change."""


def permits_host(host: str) -> bool:
    """Return whether probes may connect to this host if it is a literal address. Names are checked at the socket."""
    address = literal_address(host)
    return address is None or guard().permits(address)


def config_of(caller: Caller, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that creating from `given` would store, for a test run.

    Raises ValidationFailed for a heartbeat, which has nothing to test.
    """
    with transaction.atomic():
        _, owner = placement.place(caller, given)
    return _testable(complete(given, owner.plan))


def config_of_change(caller: Caller, public_id: str, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that a PATCH of `given` would leave, to test it before it is saved.

    Stored header values are used where that PATCH would keep them.
    """
    monitor = get_monitor(caller, public_id)
    owner = monitor.owner
    if "project_id" in given:
        with transaction.atomic():
            _, owner = placement.move(caller, given, project=monitor.project, owner=owner)
    return _testable(_patched(monitor, given, owner=owner))


def complete(given: Mapping[str, Any], plan: Plan) -> MonitorConfig:
    """Return a new monitor's config with the interval limits of the owner's plan. Raises ValidationFailed."""
    return configuration.complete(
        given,
        floor_sec=plan.min_interval_sec,
        default_sec=plan.default_interval_sec,
        permits_host=permits_host,
    )


def _testable(config: MonitorConfig) -> MonitorConfig:
    kind = types.get(config.type)
    if kind.waits:
        raise ValidationFailed(f"a {kind.name} is pinged, so there is nothing to test.", field="type")
    return config


def test_spec(config: MonitorConfig) -> CheckSpec:
    """Return the spec of a test run."""
    return types.get(config.type).spec(config, run_id=f"test-{random_text(10)}")


def create_monitor(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> Monitor:
    """Create a monitor whose first check is already claimed as FIRST_CLAIM by the caller.

    If that check is never made, the lease expires and the monitor is due like any other. A heartbeat has no first
    check: it waits for its first ping.
    """
    with transaction.atomic():
        project, owner = placement.place(caller, given)
        owner = lock_owner(owner)
        config = complete(given, owner.plan)
        enforce_quota(owner)
        domain = watched_domain(config)
        registration = None if domain is None else lock_registration(domain, now=now)
        monitor = Monitor.objects.create(
            owner=owner,
            project=project,
            registration=registration,
            created_at=now,
            **config_columns(config),
        )
        state = MonitorState(
            monitor=monitor, domain_expires_at=None if registration is None else registration.expires_at
        )
        if not monitor.kind.waits:
            state.claim, state.claimed_at, state.slot_at = FIRST_CLAIM, now, now
            state.next_due_at = now + timedelta(milliseconds=config.timeout_ms) + LEASE_MARGIN
        state.save(force_insert=True)
    return monitor


def release_first_claim(monitor: Monitor, *, now: datetime) -> None:
    """Make the first check due after no worker made it in time, so that it need not wait for the lease to expire."""
    MonitorState.objects.filter(pk=monitor.pk, claim=FIRST_CLAIM, claimed_at__isnull=False, started_slot=None).update(
        next_due_at=now
    )


def _patched(monitor: Monitor, given: Mapping[str, Any], *, owner: User) -> MonitorConfig:
    """Return the config that a PATCH leaves if `owner` owns the monitor. A new owner does not get the secrets."""
    stored = (
        monitor.full_config
        if owner.pk == monitor.owner_id
        else configuration.without_secrets(monitor.full_config, moved=True)
    )
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
        monitor, state = _lock(caller, public_id)
        project, owner = (monitor.project, monitor.owner)
        if "project_id" in given:
            project, owner = placement.move(caller, given, project=project, owner=owner)
            if owner.pk != monitor.owner_id:
                owner = lock_owner(owner)
                enforce_quota(owner)
                log.record_moves(caller, [move_of(monitor, project, owner)])
        config = _patched(monitor, given, owner=owner)
        change = reconfigure(
            monitor,
            state,
            config,
            enabled=given.get("enabled", monitor.enabled),
            registration_of=lambda domain: lock_registration(domain, now=now),
            now=now,
        )
        monitor.project, monitor.owner = project, owner
        # Write the project only if the caller moves the monitor: the present one may be deleted concurrently.
        moved = ["project", "owner"] if "project_id" in given else []
        monitor.save(update_fields=["enabled", "config_version", "registration", *moved, *config_columns(config)])
        state.save(update_fields=RECONFIGURED)
        if change is not None:
            change.save(force_insert=True)
    monitor.state = state
    return monitor


def reconfigure(
    monitor: Monitor,
    state: MonitorState,
    config: MonitorConfig,
    *,
    enabled: bool,
    registration_of: Callable[[str], DomainRegistration],
    now: datetime,
) -> StatusChange | None:
    """Apply the config to a locked monitor. Return the status change to store, or None.

    Changes rows in memory: the caller writes the monitor, the columns RECONFIGURED of its state, and the change.
    `registration_of` returns a domain's registration, locked until the transaction ends.
    """
    before, change = monitor.full_config, None
    probed_anew = configuration.differs(before, config)
    if enabled != monitor.enabled:
        change = switch(monitor, state, enabled=enabled, interval_sec=config.interval_sec, now=now)
    else:
        if probed_anew and not monitor.kind.waits:
            monitor.config_version += 1
        if enabled:
            reschedule(state, before, config, probed_anew=probed_anew, now=now)
    monitor.full_config = config
    watch(monitor, state)
    _follow_host(monitor, state, before, config, registration_of=registration_of)
    return change


def mute_monitor(caller: Caller, public_id: str, *, minutes: int, now: datetime) -> Monitor:
    """Suppress down-detection and alerts for that long, at most MAX_MUTE_MINUTES; 0 ends a mute."""
    if minutes < 0:
        raise ValidationFailed("must be 0 or more.", field="minutes")
    with transaction.atomic():
        monitor, state = _lock(caller, public_id)
        mute(monitor, state, minutes=minutes, now=now)
        monitor.save(update_fields=["muted_until"])
        state.save(update_fields=["next_due_at", "armed_at"])
    monitor.state = state
    return monitor


def delete_monitor(caller: Caller, public_id: str) -> None:
    """Delete a monitor at once. Its results become inaccessible; checks.results.erasure removes them soon after."""
    with transaction.atomic():
        monitor, _ = _lock(caller, public_id)
        monitor.delete()


def delete_all_of(user: User) -> None:
    """Delete all monitors of an account. Their states are locked in the order in which results are recorded."""
    list(MonitorState.objects.select_for_update().filter(monitor__owner=user).order_by("pk").only("pk"))
    Monitor.objects.filter(owner=user).delete()


def _lock(caller: Caller, public_id: str) -> tuple[Monitor, MonitorState]:
    """Lock and return a monitor and its state. The state row is the lock for PATCH, recording and deletion.

    The configuration is read after locking: otherwise concurrent PATCHes would undo each other's changes.
    """
    state = get_or_not_found(MonitorState.objects.select_for_update(), pk=get_monitor(caller, public_id).pk)
    return get_monitor(caller, public_id), state


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
    held = User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if held.plan_id == owner.plan_id:
        held.plan = owner.plan  # already loaded with the owner
    return held


def enforce_quota(owner: User, *, count: int = 1) -> None:
    """Raise MonitorLimit if `count` more monitors exceed the plan's limit. The caller has locked the owner's row."""
    limit = owner.plan.monitor_limit
    if limit is not None and Monitor.objects.filter(owner=owner).count() + count > limit:
        raise MonitorLimit(limit=limit)


def _follow_host(
    monitor: Monitor,
    state: MonitorState,
    before: MonitorConfig,
    after: MonitorConfig,
    *,
    registration_of: Callable[[str], DomainRegistration],
) -> None:
    """Reset the certificate and registration data if the host has changed, since the old host's data does not apply."""
    if monitor.kind.origin(before) != monitor.kind.origin(after):
        state.cert_expires_at = None
    domain = watched_domain(after)
    if domain != (None if monitor.registration is None else monitor.registration.name):
        registration = None if domain is None else registration_of(domain)
        monitor.registration = registration
        state.domain_expires_at = None if registration is None else registration.expires_at
