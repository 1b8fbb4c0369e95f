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
from django.db.models import QuerySet

from accounts.models import Plan, User
from core.bulk import BulkResult
from core.errors import ValidationFailed
from monitors import types
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, StatusChange
from monitors.services import SWITCHED, mute, switch, watch


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


def delete(ids: Collection[int], *, among: QuerySet[Monitor] | None = None) -> BulkResult[Monitor]:
    """Delete monitors at once. Their results are removed soon after."""
    with transaction.atomic():
        result = _each(ids, among, lambda _: None)
        Monitor.objects.filter(pk__in=[monitor.pk for monitor in result.done]).delete()
    return result


def raise_intervals(owners: Collection[User], plan: Plan) -> None:
    """Raise the intervals of accounts that have just moved to `plan` to its minimum. Runs in the same transaction.

    All states are locked, not only those of short intervals: a concurrent edit may shorten an interval.
    """
    owned = Monitor.objects.filter(owner__in=[owner.pk for owner in owners])
    short = owned.filter(interval_sec__lt=plan.min_interval_sec)
    # The deadlines of heartbeats move; other types keep their due time.
    heartbeats = lock_monitors(owned.values_list("pk", flat=True), short.filter(type__in=types.waiting())).values()
    short.update(interval_sec=plan.min_interval_sec)
    for monitor in heartbeats:
        monitor.interval_sec = plan.min_interval_sec
        watch(monitor)
    write_columns([monitor.state for monitor in heartbeats], ["next_due_at"])


def _switch(
    ids: Collection[int], among: QuerySet[Monitor] | None, *, enabled: bool, now: datetime
) -> BulkResult[Monitor]:
    changes: list[StatusChange] = []

    def do(monitor: Monitor) -> str | None:
        if monitor.enabled == enabled:
            return "running already" if enabled else "paused already"
        changes.append(switch(monitor, enabled=enabled, now=now))
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
