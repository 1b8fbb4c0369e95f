"""Many monitors at once, by the rules of `monitors.services`: as many statements for a thousand as for one.

All of it inside the caller's transaction, in the order of locks that every other way of changing monitors keeps:
states, then projects, then owners, then registrations. The caller holds the projects.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import F

from accounts.models import User
from core.bulk import update_rows
from monitors.configuration import MonitorConfig, MonitorType, check_type, watched_domain
from monitors.expiry.registrations import lock_registrations
from monitors.lifecycle import switch
from monitors.models import Monitor, MonitorState, StatusChange, config_columns
from monitors.services import RECONFIGURED, enforce_quota, lock_owner, reconfigure
from projects.models import Project

_MONITOR_COLUMNS = {
    "id": "bigint",
    "enabled": "boolean",
    "config_version": "integer",
    "registration_id": "bigint",
    "project_id": "bigint",
    "owner_id": "bigint",
    "interval_sec": "integer",
    "type": "text",
    "name": "text",
    "url": "text",
    "method": "text",
    "grace_sec": "integer",
    "slow_ms": "integer",
    "timeout_ms": "integer",
    "expect_status": "integer",
    "follow_redirects": "boolean",
    "check_ssl": "boolean",
    "check_domain": "boolean",
    "content_rules": "jsonb",
    "request_headers": "jsonb",
    "header_values": "bytea",
    "request_body": "text",
    "fail_threshold": "integer",
    "recover_threshold": "integer",
}
_HEADER_VALUES = Monitor._meta.get_field("header_values")
_STATE_COLUMNS = {
    "monitor_id": "bigint",
    "next_due_at": "timestamptz",
    "claimed_at": "timestamptz",
    "armed_at": "timestamptz",
    "fresh": "boolean",
    "failures": "integer",
    "passes": "integer",
    "failing_since": "timestamptz",
    "cert_expires_at": "timestamptz",
    "domain_expires_at": "timestamptz",
}
assert set(_STATE_COLUMNS) == {"monitor_id", *RECONFIGURED}


@dataclass(frozen=True, slots=True)
class New:
    """A monitor to be made. The config was settled by `monitors.configuration` with the owner's floor."""

    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """What a monitor is to become, all of it: where it is and whether it is paused too."""

    monitor_id: int
    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool


def create_monitors(news: Sequence[New], *, now: datetime) -> list[Monitor]:
    """In the order given. Raises MonitorLimit, and then none is made.

    Their first checks are due at once, for the scheduler's next tick: nobody waits for a thousand of them, and the
    queue of those for whom somebody waits is not the place for so many.
    """
    held = _lock_owners_with_quota(news)
    news = [
        replace(new, owner=held[new.owner.pk], config=_floored(new.config, held[new.owner.pk]))
        for new in news
    ]
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
            next_due_at=None if new.config.type is MonitorType.HEARTBEAT else now,
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
    """Monitors that are gone by now are left out. Raises MonitorLimit for an owner who gets too many.

    What each was is read under the lock, as in `update_monitor`: what somebody else changed a moment ago counts.
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
        check_type(MonitorType(monitor.type), change.config.type)
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
    update_rows("monitors_monitor", _MONITOR_COLUMNS, [_row(one) for one in monitors], key="id")
    update_rows(
        "monitors_monitorstate",
        _STATE_COLUMNS,
        [[getattr(one.state, name) for name in _STATE_COLUMNS] for one in monitors],
        key="monitor_id",
    )
    StatusChange.objects.bulk_create(status_changes)


def lock_monitors(monitor_ids: Collection[int]) -> dict[int, Monitor]:
    """Those that are there, by their keys, read under the lock of their states, which is held in one order."""
    states = MonitorState.objects.select_for_update().filter(pk__in=monitor_ids)
    keys = list(states.order_by("pk").values_list("pk", flat=True))
    return Monitor.objects.select_related("state", "registration", "project", "owner__plan").in_bulk(keys)


def _lock_owners_with_quota(wanted: Sequence[New | Change]) -> dict[int, User]:
    """The owners of what arrives, held in one order, by their keys; raises MonitorLimit."""
    counts = Counter(one.owner.pk for one in wanted)
    owners = {one.owner.pk: one.owner for one in wanted}
    held = {}
    for key in sorted(counts):
        held[key] = lock_owner(owners[key])
        enforce_quota(held[key], count=counts[key])
    return held


def _floored(config: MonitorConfig, owner: User) -> MonitorConfig:
    """By the plan as it is under the lock: it may be another than when the config was settled."""
    return replace(config, interval_sec=max(config.interval_sec, owner.plan.min_interval_sec))


def _watched(monitor: Monitor) -> str | None:
    return None if monitor.registration is None else monitor.registration.name


def _row(monitor: Monitor) -> list[object]:
    values = {name: getattr(monitor, name) for name in _MONITOR_COLUMNS}
    values["header_values"] = _HEADER_VALUES.to_text(values["header_values"])
    return [json.dumps(value) if isinstance(value, list) else value for value in values.values()]
