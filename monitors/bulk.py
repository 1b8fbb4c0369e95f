"""Create and update many monitors by the rules of `monitors.services`, with a constant number of statements.

Everything runs inside the caller's transaction and takes locks in the order that all changes of monitors use: states,
projects, owners, registrations. The caller has locked the projects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounts.models import User
from monitors.configuration import apply_floor, check_type, config_columns, watched_domain
from monitors.expiry.registrations import lock_registrations
from monitors.heartbeats.log import hide_earlier
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.services import CONFIGURED, RECONFIGURED, enforce_quota, lock_owner, reconfigure, switch
from monitors.slots import refill_slots
from monitors.types.settings import MonitorConfig
from projects.models import Project


@dataclass(frozen=True, slots=True)
class Draft:
    """A monitor to create, or the complete target state of an existing one.

    `monitors.configuration` has settled the config with the owner's minimum interval.
    """

    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool = True


def create_monitors(drafts: Sequence[Draft], *, now: datetime) -> list[Monitor]:
    """Create monitors and return them in the given order. Raises MonitorLimit without creating any.

    The first checks are due at once and claimed by the scheduler's next tick. No caller waits for them, so they must
    not fill the queue of checks whose callers wait.
    """
    owners = _lock_owners_with_quota(drafts)
    drafts = [_under(owners[draft.owner.pk], draft) for draft in drafts]
    domains = [watched_domain(draft.config) for draft in drafts]
    registrations = lock_registrations(filter(None, domains), now=now)
    monitors = [
        Monitor(
            owner=draft.owner,
            project=draft.project,
            registration=registrations.get(domain or ""),
            created_at=now,
            **config_columns(draft.config),
        )
        for draft, domain in zip(drafts, domains, strict=True)
    ]
    states = [
        MonitorState(
            monitor=monitor,
            next_due_at=_first_due_at(monitor, now),
            domain_expires_at=monitor.registration.expires_at if monitor.registration else None,
        )
        for monitor in monitors
    ]
    changes = [
        change
        for monitor, draft in zip(monitors, drafts, strict=True)
        if not draft.enabled
        for change in switch(monitor, enabled=False, since=None, now=now)
    ]
    Monitor.objects.bulk_create(monitors)
    MonitorState.objects.bulk_create(states)
    refill_slots(monitors)
    StatusChange.objects.bulk_create(changes)
    return monitors


def update_monitors(drafts: Mapping[int, Draft], *, now: datetime) -> None:
    """Change the monitors with these keys and skip deleted ones. Raises MonitorLimit if an owner exceeds the quota.

    The previous values are read under the lock, as in `update_monitor`, so concurrent changes are included.
    """
    monitors = lock_for_update(drafts.keys())
    drafts = {key: drafts[key] for key in monitors}
    moved = {key: draft for key, draft in drafts.items() if monitors[key].owner_id != draft.owner.pk}
    owners = _lock_owners_with_quota(list(moved.values()))
    if moved:
        hide_earlier([monitors[key] for key in moved], now=now)
    domains = {
        watched_domain(draft.config)
        for key, draft in drafts.items()
        if watched_domain(draft.config) != _watched(monitors[key])
    }
    registrations = lock_registrations(filter(None, domains), now=now)
    changes: list[StatusChange] = []
    for key, monitor in monitors.items():
        draft = _under(owners.get(drafts[key].owner.pk, monitor.owner), drafts[key])
        check_type(monitor.type, draft.config.type)
        changes += reconfigure(
            monitor,
            draft.config,
            enabled=draft.enabled,
            registration_of=lambda domain: registrations.get(domain or ""),
            now=now,
        )
        monitor.project, monitor.owner = draft.project, draft.owner
    write_columns(list(monitors.values()), (*CONFIGURED, "project", "owner", "owned_since"))
    write_columns([monitor.state for monitor in monitors.values()], RECONFIGURED)
    refill_slots(monitors.values())
    StatusChange.objects.bulk_create(changes)


def lock_for_update(monitor_ids: Collection[int]) -> dict[int, Monitor]:
    """Lock monitors and return the existing ones by key, with what `update_monitors` reads."""
    return lock_monitors(monitor_ids, Monitor.objects.select_related("registration", "project", "owner__plan"))


def _lock_owners_with_quota(drafts: Sequence[Draft]) -> dict[int, User]:
    """Lock the new owners in key order and return them by key. Raises MonitorLimit."""
    counts = Counter(draft.owner.pk for draft in drafts)
    owners = {draft.owner.pk: draft.owner for draft in drafts}
    for key in sorted(owners):
        owners[key] = lock_owner(owners[key])
        enforce_quota(owners[key], count=counts[key])
    return owners


def _under(owner: User, draft: Draft) -> Draft:
    """Return the draft for the locked owner, whose plan's minimum interval may have changed since validation."""
    return replace(draft, owner=owner, config=apply_floor(draft.config, floor_sec=owner.plan.min_interval_sec))


def _first_due_at(monitor: Monitor, now: datetime) -> datetime | None:
    if monitor.kind.waits:
        return None
    return now if monitor.schedule is None else monitor.schedule.next_after(now)


def _watched(monitor: Monitor) -> str | None:
    return None if monitor.registration is None else monitor.registration.name
