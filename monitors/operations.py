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
from core.bulk_actions import BulkResult
from core.errors import ValidationFailed
from monitors import types
from monitors.lifecycle import mute, switch, watch
from monitors.models import Monitor, MonitorState, StatusChange

_STATE_COLUMNS = ["next_due_at", "claimed_at", "armed_at", "fresh", "failures", "passes", "failing_since"]


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

    def do(monitor: Monitor, state: MonitorState) -> str | None:
        if minutes == 0 and monitor.muted_until is None:
            return "not muted"
        mute(monitor, state, minutes=minutes, now=now)
        return None

    with transaction.atomic():
        outcome = _each(ids, among, do)
        Monitor.objects.bulk_update(outcome.done, ["muted_until"])
        _write_states(outcome.done, ["next_due_at", "armed_at"])
    return outcome


def delete(ids: Collection[int], *, among: QuerySet[Monitor] | None = None) -> BulkResult[Monitor]:
    """Delete monitors at once. Their results are removed soon after."""
    with transaction.atomic():
        outcome = _each(ids, among, lambda *_: None)
        Monitor.objects.filter(pk__in=[monitor.pk for monitor in outcome.done]).delete()
    return outcome


def raise_intervals(owners: Collection[User], plan: Plan) -> None:
    """Raise the intervals of accounts that have just moved to `plan` to its minimum. Runs in the same transaction.

    All states are locked, not only those of short intervals: a concurrent edit may shorten an interval.
    """
    ids = [owner.pk for owner in owners]
    states = MonitorState.objects.select_for_update().filter(monitor__owner__in=ids)
    list(states.order_by("pk").values_list("pk"))
    short = Monitor.objects.filter(owner__in=ids, interval_sec__lt=plan.min_interval_sec)
    heartbeats = list(short.filter(type__in=types.waiting()).select_related("state"))
    short.update(interval_sec=plan.min_interval_sec)
    for monitor in heartbeats:  # their deadlines move; other types keep their due time
        monitor.interval_sec = plan.min_interval_sec
        watch(monitor, monitor.state)
    _write_states(heartbeats, ["next_due_at"])


def _switch(
    ids: Collection[int], among: QuerySet[Monitor] | None, *, enabled: bool, now: datetime
) -> BulkResult[Monitor]:
    changes: list[StatusChange] = []

    def do(monitor: Monitor, state: MonitorState) -> str | None:
        if monitor.enabled == enabled:
            return "running already" if enabled else "paused already"
        changes.append(switch(monitor, state, enabled=enabled, interval_sec=monitor.interval_sec, now=now))
        watch(monitor, state)
        return None

    with transaction.atomic():
        outcome = _each(ids, among, do)
        Monitor.objects.bulk_update(outcome.done, ["enabled", "config_version"])
        _write_states(outcome.done, _STATE_COLUMNS)
        StatusChange.objects.bulk_create(changes)
    return outcome


def _each(
    ids: Collection[int],
    among: QuerySet[Monitor] | None,
    do: Callable[[Monitor, MonitorState], str | None],
) -> BulkResult[Monitor]:
    """Lock the states in the order in which results are recorded, and call `do` for each monitor.

    `do` returns None, or the reason why it skipped the monitor. The configurations are read after locking.
    """
    states = {state.pk: state for state in MonitorState.objects.select_for_update().filter(pk__in=ids).order_by("pk")}
    done: list[Monitor] = []
    left: Counter[str] = Counter()
    monitors = Monitor.objects.all() if among is None else among
    for monitor in monitors.filter(pk__in=states).order_by("pk"):
        monitor.state = states[monitor.pk]
        reason = do(monitor, monitor.state)
        if reason is None:
            done.append(monitor)
        else:
            left[reason] += 1
    return BulkResult(done, left)


def _write_states(monitors: Collection[Monitor], columns: Collection[str]) -> None:
    MonitorState.objects.bulk_update([monitor.state for monitor in monitors], columns)
