"""Create and update many monitors by the rules of `monitors.services`, with a constant number of statements.

Everything runs inside the caller's transaction and takes locks in the order that all changes of monitors use: states,
projects, owners, registrations. The caller has locked the projects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from accounts.models import User
from monitors.configuration import apply_floor, check_type
from monitors.heartbeats.log import hide_earlier
from monitors.locking import lock_monitors
from monitors.models import Monitor
from monitors.services import Draft, enforce_quota, lock_owner, store_changed, store_new


def create_monitors(drafts: Sequence[Draft], *, now: datetime) -> list[Monitor]:
    """Create monitors and return them in the given order. Raises MonitorLimit without creating any.

    The first checks are due at once and claimed by the scheduler's next tick. No caller waits for them, so they must
    not fill the queue of checks whose callers wait.
    """
    owners = _lock_owners_with_quota(drafts)
    return store_new([_under(owners[draft.owner.pk], draft) for draft in drafts], is_claimed=False, now=now)


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
    changed = []
    for key, draft in drafts.items():
        check_type(monitors[key].type, draft.config.type)
        changed.append((monitors[key], _under(owners.get(draft.owner.pk, monitors[key].owner), draft)))
    store_changed(changed, now=now)


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
