"""Bulk actions on monitors, given by their keys. Each is one transaction with a constant number of statements. The
rules are those of `monitors.services`, which changes one monitor for a caller.

Without a caller, they change all of these monitors, for staff or a command; else those that the caller may change.
The actions are idempotent. The result has the reason of each skipped monitor; missing monitors are ignored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.models import Plan, User
from audit.actions import Action
from core.bulk import BulkResult
from core.errors import ValidationFailed
from monitors import changes, types
from monitors.edits import SWITCHED, arm_after_change, end_staleness, mute, switch, watch
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, StatusChange
from monitors.services import delete_locked
from monitors.stale import stale, stale_since
from projects.access import Caller, writable


def pause(ids: Collection[int], *, now: datetime, caller: Caller | None = None) -> BulkResult[Monitor]:
    return _switch(ids, caller, enabled=False, now=now)


def resume(ids: Collection[int], *, now: datetime, caller: Caller | None = None) -> BulkResult[Monitor]:
    return _switch(ids, caller, enabled=True, now=now)


def mute_for(ids: Collection[int], *, minutes: int, now: datetime, caller: Caller | None = None) -> BulkResult[Monitor]:
    """Mute monitors for `minutes` from now on; 0 ends mutes."""
    if minutes < 0:
        raise ValidationFailed("must be 0 or more.", field="minutes")

    def do(monitor: Monitor) -> str | None:
        if minutes == 0 and monitor.muted_until is None:
            return "not muted"
        before = monitor.muted_until
        mute(monitor, minutes=minutes, now=now)
        made.append(changes.changed("muted_until", before, monitor.muted_until))
        return None

    action, made = Action.MONITOR_MUTED if minutes else Action.MONITOR_UNMUTED, list[list[dict[str, Any]]]()
    with transaction.atomic():
        result = _each(ids, caller, do)
        changes.record(caller, result.done, made, action=action)
        write_columns(result.done, ["muted_until"])
        write_columns([monitor.state for monitor in result.done], ["next_due_at", "armed_at"])
    return result


def delete(
    ids: Collection[int],
    *,
    caller: Caller | None = None,
    unless: Callable[[Monitor], str | None] = lambda _: None,
) -> BulkResult[Monitor]:
    """Delete monitors at once, without those for which `unless` returns a reason. Results are removed soon after."""
    with transaction.atomic():
        result = _each(ids, caller, unless, load=["dependencies"])
        delete_locked(caller, result.done)
    return result


def raise_intervals(owners: Collection[User], plan: Plan, *, now: datetime) -> None:
    """Raise the intervals of accounts that have just moved to `plan` to its minimum. Runs in the same transaction.

    A schedule whose runs are closer ends, and the interval counts instead. All states are locked, not only those of
    short intervals: a concurrent edit may shorten an interval.
    """
    owned = Monitor.objects.filter(owner__in=[owner.pk for owner in owners])
    # The deadlines of heartbeats move; other types keep their due time, but may no longer be stale.
    has_schedule = Q(config__schedule__isnull=False) & ~Q(config__schedule=None)
    is_raised = Q(interval_sec__lt=plan.min_interval_sec)
    moved = owned.filter(is_raised & (Q(type__in=types.waiting()) | stale(now)) | has_schedule)
    monitors = lock_monitors(owned.values_list("pk", flat=True), moved.select_related("project", "owner")).values()
    short = owned.filter(is_raised).select_related("project", "owner").defer("config", "header_values", "url")
    changed, made = {monitor.pk: monitor for monitor in short}, defaultdict[int, list[dict[str, Any]]](list)
    for key, monitor in changed.items():
        made[key] += changes.changed("interval_sec", monitor.interval_sec, plan.min_interval_sec)
    owned.filter(is_raised).update(interval_sec=plan.min_interval_sec)
    ended, transitions = [], list[StatusChange]()
    for monitor in monitors:
        since = stale_since(monitor, now=now)
        monitor.interval_sec = max(monitor.interval_sec, plan.min_interval_sec)
        if monitor.schedule is not None and monitor.shortest_interval.total_seconds() < plan.min_interval_sec:
            changed.setdefault(monitor.pk, monitor)
            made[monitor.pk] += changes.changed("schedule", monitor.config["schedule"], None)
            monitor.config = monitor.config | {"schedule": None}
            ended.append(monitor)
            if monitor.kind.waits and monitor.enabled:
                monitor.state.armed_at = arm_after_change(monitor, now=now)
        transitions += end_staleness(monitor, since=since, now=now)
        watch(monitor)
    write_columns(ended, ["config"])
    write_columns([monitor.state for monitor in monitors], ["next_due_at", "armed_at", "fault_since"])
    StatusChange.objects.bulk_create(transitions)
    changes.record(None, changed.values(), [made[key] for key in changed])


def _switch(ids: Collection[int], caller: Caller | None, *, enabled: bool, now: datetime) -> BulkResult[Monitor]:
    transitions: list[StatusChange] = []

    def do(monitor: Monitor) -> str | None:
        if monitor.enabled == enabled:
            return "already running" if enabled else "already paused"
        transitions.extend(switch(monitor, enabled=enabled, since=stale_since(monitor, now=now), now=now))
        watch(monitor)
        return None

    with transaction.atomic():
        result = _each(ids, caller, do)
        write_columns(result.done, ["enabled", "config_version"])
        write_columns([monitor.state for monitor in result.done], SWITCHED)
        StatusChange.objects.bulk_create(transitions)
        changes.record(caller, result.done, repeat(changes.changed("enabled", not enabled, enabled)))
    return result


def _each(
    ids: Collection[int],
    caller: Caller | None,
    do: Callable[[Monitor], str | None],
    *,
    load: Sequence[str] = (),
) -> BulkResult[Monitor]:
    """Lock the monitors and call `do` for each. It returns None, or the reason why it skipped the monitor.

    `load` names relations that `do` reads.
    """
    # Access is evaluated after locking. Entries of the audit log have the project, or without a caller the owner.
    among = Monitor.objects.select_related("project").prefetch_related(*load)
    among = among.select_related("owner") if caller is None else writable(caller, among)
    reasons = [(monitor, do(monitor)) for monitor in lock_monitors(ids, among).values()]
    done = [monitor for monitor, reason in reasons if reason is None]
    return BulkResult(done, Counter(reason for _, reason in reasons if reason is not None))
