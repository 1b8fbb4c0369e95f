"""Create and update many monitors by the rules of `monitors.services`, with a constant number of statements.

Everything runs inside the caller's transaction and takes locks in the order that all changes of monitors use: states,
projects, owners, registrations. The caller has locked the projects.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from django.db import connection
from django.db.models import F

from accounts.models import User
from core.bulk import update_rows
from core.crypto import EncryptedField
from monitors.configuration import check_type, watched_domain
from monitors.expiry.registrations import lock_registrations
from monitors.lifecycle import switch
from monitors.models import Monitor, MonitorState, StatusChange, config_columns
from monitors.services import RECONFIGURED, enforce_quota, lock_owner, reconfigure
from monitors.types.settings import MonitorConfig
from projects.models import Project

_PLACE = ("id", "enabled", "config_version", "registration_id", "project_id", "owner_id")


@dataclass(frozen=True, slots=True)
class New:
    """A monitor to create. `monitors.configuration` has settled the config with the owner's minimum interval."""

    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """The complete target state of a monitor, including its project, its owner and whether it is paused."""

    monitor_id: int
    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool


def create_monitors(news: Sequence[New], *, now: datetime) -> list[Monitor]:
    """Create monitors and return them in the given order. Raises MonitorLimit without creating any.

    The first checks are due at once and claimed by the scheduler's next tick. No caller waits for them, so they must
    not fill the queue of checks whose callers wait.
    """
    held = _lock_owners_with_quota(news)
    news = [replace(new, owner=held[new.owner.pk], config=_floored(new.config, held[new.owner.pk])) for new in news]
    domains = [watched_domain(new.config) for new in news]
    registrations = lock_registrations(filter(None, domains), now=now)
    pairs = [(new, registrations.get(domain or "")) for new, domain in zip(news, domains, strict=True)]
    made = Monitor.objects.bulk_create(
        Monitor(
            owner=new.owner,
            project=new.project,
            registration=registration,
            created_at=now,
            **config_columns(new.config),
        )
        for new, registration in pairs
    )
    states, changes = [], []
    for monitor, (new, registration) in zip(made, pairs, strict=True):
        state = MonitorState(
            monitor=monitor,
            next_due_at=None if monitor.kind.waits else now,
            domain_expires_at=None if registration is None else registration.expires_at,
        )
        if not new.enabled:
            changes.append(switch(monitor, state, enabled=False, interval_sec=monitor.interval_sec, now=now))
        states.append(state)
    MonitorState.objects.bulk_create(states)
    StatusChange.objects.bulk_create(changes)
    paused = Monitor.objects.filter(pk__in=[change.monitor_id for change in changes])
    paused.update(enabled=False, config_version=F("config_version") + 1)
    return made


def update_monitors(changes: Sequence[Change], *, now: datetime) -> None:
    """Apply the changes and skip deleted monitors. Raises MonitorLimit if an owner would exceed the quota.

    The previous values are read under the lock, as in `update_monitor`, so concurrent changes are included.
    """
    there = lock_monitors([change.monitor_id for change in changes])
    pairs = [(there[change.monitor_id], change) for change in changes if change.monitor_id in there]
    arriving = [change for monitor, change in pairs if monitor.owner_id != change.owner.pk]
    held = _lock_owners_with_quota(arriving)
    joined = [(watched_domain(change.config), _watched(monitor)) for monitor, change in pairs]
    domains = {after for after, before in joined if after != before}
    registrations = lock_registrations(filter(None, domains), now=now)
    status_changes = []
    for monitor, change in pairs:
        check_type(monitor.type, change.config.type)
        owner = held.get(change.owner.pk, monitor.owner)
        status_change = reconfigure(
            monitor,
            monitor.state,
            _floored(change.config, owner),
            enabled=change.enabled,
            registration_of=registrations.__getitem__,
            now=now,
        )
        monitor.project, monitor.owner = change.project, owner
        if status_change is not None:
            status_changes.append(status_change)
    monitors = [monitor for monitor, _ in pairs]
    if monitors:
        _update(Monitor, (*_PLACE, *config_columns(monitors[0].full_config)), monitors)
        _update(MonitorState, ("monitor_id", *RECONFIGURED), [monitor.state for monitor in monitors])
    StatusChange.objects.bulk_create(status_changes)


def lock_monitors(monitor_ids: Collection[int]) -> dict[int, Monitor]:
    """Lock the states in key order, then read the monitors. Return the existing ones by key."""
    states = MonitorState.objects.select_for_update().filter(pk__in=monitor_ids)
    keys = list(states.order_by("pk").values_list("pk", flat=True))
    return Monitor.objects.select_related("state", "registration", "project", "owner__plan").in_bulk(keys)


def _lock_owners_with_quota(wanted: Sequence[New | Change]) -> dict[int, User]:
    """Lock the new owners in key order and return them by key. Raises MonitorLimit."""
    counts = Counter(one.owner.pk for one in wanted)
    owners = {one.owner.pk: one.owner for one in wanted}
    held = {}
    for key in sorted(counts):
        held[key] = lock_owner(owners[key])
        enforce_quota(held[key], count=counts[key])
    return held


def _floored(config: MonitorConfig, owner: User) -> MonitorConfig:
    """Raise the interval to the minimum of the locked owner's plan, which may have changed since validation."""
    interval_sec = max(config.interval_sec, owner.plan.min_interval_sec)
    return msgspec.structs.replace(config, interval_sec=interval_sec)


def _watched(monitor: Monitor) -> str | None:
    return None if monitor.registration is None else monitor.registration.name


def _update(
    model: type[Monitor | MonitorState], columns: Sequence[str], rows: Sequence[Monitor | MonitorState]
) -> None:
    fields = {field.column: field for field in model._meta.concrete_fields}
    types = {name: fields[name].db_type(connection) or "" for name in columns}
    update_rows(
        model._meta.db_table,
        types,
        [[_plain(fields[name], getattr(row, name)) for name in columns] for row in rows],
        key=columns[0],
    )


def _plain(field: object, value: object) -> object:
    if isinstance(field, EncryptedField):
        return field.to_text(value)
    return json.dumps(value) if isinstance(value, dict) else value
