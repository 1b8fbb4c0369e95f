"""Bulk actions on monitors, given by their keys. Each is one transaction with a constant number of statements. The
rules are those of `monitors.services`, which changes one monitor for a caller.

`among`: monitors that the caller may change, evaluated after locking. None: all monitors, for an operator.
The actions are idempotent. The result has the reason of each skipped monitor; missing monitors are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import Plan, User
from core.bulk import BulkResult
from core.errors import ValidationFailed
from monitors import types
from monitors.edits import SWITCHED, arm_after_change, end_staleness, mute, switch, watch
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, StatusChange
from monitors.services import delete_locked
from monitors.stale import stale, stale_since


def pause(ids: Collection[int], *, now: datetime, among: QuerySet[Monitor] | None = None) -> BulkResult[Monitor]:
    return _switch(ids, among, enabled=False, now=now)


def resume(ids: Collection[int], *, now: datetime, among: QuerySet[Monitor] | None = None) -> BulkResult[Monitor]:
    return _switch(ids, among, enabled=True, now=now)


def mute_for(
    ids: Collection[int], *, minutes: int, now: datetime, among: QuerySet[Monitor] | None = None
) -> BulkResult[Monitor]:
    """Mute monitors for `minutes` from now on; 0 ends mutes."""
    if minutes < 0:
        raise ValidationFailed("must be 0 or more.", field="minutes")

    def do(monitor: Monitor) -> str | None:
        if minutes == 0 and monitor.muted_until is None:
            return "not muted"
        mute(monitor, minutes=minutes, now=now)
        return None

    with transaction.atomic():
        result = _each(ids, among, do)
        write_columns(result.done, ["muted_until"])
        write_columns([monitor.state for monitor in result.done], ["next_due_at", "armed_at"])
    return result


def delete(
    ids: Collection[int],
    *,
    among: QuerySet[Monitor] | None = None,
    unless: Callable[[Monitor], str | None] = lambda _: None,
) -> BulkResult[Monitor]:
    """Delete monitors at once, without those for which `unless` returns a reason. Results are removed soon after."""
    with transaction.atomic():
        result = _each(ids, among, unless)
        delete_locked([monitor.pk for monitor in result.done])
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
    monitors = lock_monitors(owned.values_list("pk", flat=True), moved).values()
    owned.filter(is_raised).update(interval_sec=plan.min_interval_sec)
    ended, changes = [], list[StatusChange]()
    for monitor in monitors:
        since = stale_since(monitor, now=now)
        monitor.interval_sec = max(monitor.interval_sec, plan.min_interval_sec)
        if monitor.schedule is not None and monitor.shortest_interval.total_seconds() < plan.min_interval_sec:
            monitor.config = monitor.config | {"schedule": None}
            ended.append(monitor)
            if monitor.kind.waits and monitor.enabled:
                monitor.state.armed_at = arm_after_change(monitor, now=now)
        changes += end_staleness(monitor, since=since, now=now)
        watch(monitor)
    write_columns(ended, ["config"])
    write_columns([monitor.state for monitor in monitors], ["next_due_at", "armed_at", "fault_since"])
    StatusChange.objects.bulk_create(changes)


def _switch(
    ids: Collection[int], among: QuerySet[Monitor] | None, *, enabled: bool, now: datetime
) -> BulkResult[Monitor]:
    changes: list[StatusChange] = []

    def do(monitor: Monitor) -> str | None:
        if monitor.enabled == enabled:
            return "already running" if enabled else "already paused"
        changes.extend(switch(monitor, enabled=enabled, since=stale_since(monitor, now=now), now=now))
        watch(monitor)
        return None

    with transaction.atomic():
        result = _each(ids, among, do)
        write_columns(result.done, ["enabled", "config_version"])
        write_columns([monitor.state for monitor in result.done], SWITCHED)
        StatusChange.objects.bulk_create(changes)
    return result


def _each(
    ids: Collection[int], among: QuerySet[Monitor] | None, do: Callable[[Monitor], str | None]
) -> BulkResult[Monitor]:
    """Lock the monitors and call `do` for each. It returns None, or the reason why it skipped the monitor."""
    reasons = [(monitor, do(monitor)) for monitor in lock_monitors(ids, among).values()]
    done = [monitor for monitor, reason in reasons if reason is None]
    return BulkResult(done, Counter(reason for _, reason in reasons if reason is not None))
