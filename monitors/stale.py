"""Stale monitors: none of their checks ended for more than twice the interval, by our own fault.

`stale_since`, `stale` and `count_stale` are the same definition in Python, for the ORM and in SQL; a test compares
them. `count_stale` is for the operator: it leaves out monitors whose private locations are all offline. Heartbeats are
not checked, so they are never stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db.models import Case, DateTimeField, DurationField, ExpressionWrapper, F, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT, KeyTextTransform
from django.db.models.functions import Coalesce
from django.db.models.lookups import IsNull, LessThan
from psycopg.rows import class_row

from monitors import types
from monitors.models import LEASE_MARGIN, Monitor, StatusChange

SCHEDULE_PATIENCE = timedelta(minutes=5)
"""A cron schedule has no interval. A trigger is stale if it is this late."""

NOT_STARTED = "No worker has started the check: the scheduler does not run, or the workers are behind."
LOST = "No worker returned a result in time: none runs, or the one that took the check was stopped."

NOWHERE = "None of its locations is online."

STALE_COLUMNS = (
    *("enabled", "type", "interval_sec", "timeout_ms"),
    *("state__next_due_at", "state__slot_at", "state__claimed_at"),
    *("state__last_checked_at", "state__fault", "state__fault_since"),
)
"""The columns that a query with `only` loads, followed by `load_schedules`, so that `stale_since` needs no query per
row."""

_SECOND, _MS = timedelta(seconds=1), timedelta(milliseconds=1)

# The check that is due, or whose claim is open. With an earlier fault, the first check that it prevented.
DUE_SQL = """
    coalesce(state.fault_since, CASE WHEN state.claimed_at IS NULL THEN state.next_due_at ELSE state.slot_at END)
"""
# A due check may take its lease before it is late. A monitor is checked once an interval, so the last check ended about
# one interval before the one that is due.
PATIENCE_SQL = f"""
    (CASE WHEN monitor.config->>'schedule' IS NULL THEN monitor.interval_sec
          ELSE {SCHEDULE_PATIENCE.total_seconds():.0f} END * interval '1 second'
     + monitor.timeout_ms * interval '1 millisecond' + interval '{LEASE_MARGIN.total_seconds():.0f} seconds')
"""
_STALE_SQL = f"""
    monitor.enabled AND monitor.type <> ALL(%(waiting)s) AND {DUE_SQL} + {PATIENCE_SQL} < %(now)s
    AND (state.last_checked_at IS NULL OR state.last_checked_at + {PATIENCE_SQL} < %(now)s)
"""
ALL_PRIVATE_SQL = """
    (monitor.locations IS NOT NULL AND NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(monitor.locations) AS own (name)
          JOIN locations_location AS location ON location.public_id = own.name
         WHERE location.owner_id IS NULL))
"""
"""Whether those who own the monitor run all of its locations. The operator is not notified while these are offline."""
# Reads the due rows and those with a fault, by their partial indexes, and not all rows. A first claim that is in flight
# late is missed.
_COUNT = f"""
    WITH late AS (
        (SELECT * FROM monitors_monitorstate
          WHERE next_due_at <= %(now)s AND claimed_at IS NULL AND fault_since IS NULL
          ORDER BY next_due_at LIMIT %(most)s)
        UNION ALL
        (SELECT * FROM monitors_monitorstate WHERE fault_since IS NOT NULL ORDER BY fault_since LIMIT %(most)s)
    )
    SELECT coalesce(state.fault, %(not_started)s) AS reason, count(*) AS monitors,
           min(greatest({DUE_SQL}, state.last_checked_at)) AS since
      FROM late AS state
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
     WHERE {_STALE_SQL} AND NOT (state.fault IS NOT DISTINCT FROM %(nowhere)s AND {ALL_PRIVATE_SQL})
     GROUP BY 1
     ORDER BY 2 DESC, 1
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class StaleGroup:
    """Stale monitors with the same `reason`, a sentence. `since` is that of the first of them."""

    reason: str
    monitors: int
    since: datetime

    @property
    def label(self) -> str:
        """Return what kind of reason it is, one of LABELS."""
        return {NOT_STARTED: "not_started", LOST: "lost"}.get(self.reason, "own_fault")


LABELS = ("not_started", "lost", "own_fault")


def stale_since(monitor: Monitor, *, now: datetime) -> datetime | None:
    """Return the time from which on a stale monitor was not observed, or None if it is not stale.

    It is the time of the first check that was due and not made.
    """
    state = monitor.state
    due_at = state.fault_since or (state.next_due_at if state.claimed_at is None else state.slot_at)
    if due_at is None or not monitor.enabled or monitor.kind.waits:
        return None
    last = due_at if state.last_checked_at is None else max(due_at, state.last_checked_at)
    return last if last + _patience(monitor) < now else None


def load_schedules(monitors: Sequence[Monitor]) -> None:
    """Set `config` to what decides when a monitor is due: all settings of a thousand monitors take 100 MiB.

    Takes a query if some of them are heartbeats, and one if some are schedulers.
    """
    found: dict[int, dict[str, Any]] = {}
    if heartbeats := [monitor.pk for monitor in monitors if monitor.kind.waits]:
        found |= dict(Monitor.objects.filter(pk__in=heartbeats).values_list("pk", "config"))
    if schedulers := [monitor.pk for monitor in monitors if monitor.kind.fires]:
        schedules = Monitor.objects.filter(pk__in=schedulers).values_list("pk", KT("config__schedule"))
        found |= {pk: {"schedule": schedule} for pk, schedule in schedules}
    for monitor in monitors:
        monitor.config = found.get(monitor.pk, {})


def stale_reason(monitor: Monitor) -> str:
    """Return why a stale monitor is not checked, as a sentence."""
    return monitor.state.fault or NOT_STARTED


def stale(now: datetime, *, of: str = "") -> Q:
    """Match the monitors for which `stale_since` returns a time.

    `of` precedes the columns where monitors are related to the rows: `monitors__` of projects.
    """
    due_at = Coalesce(
        f"{of}state__fault_since",
        Case(When(Q((f"{of}state__claimed_at", None)), then=f"{of}state__next_due_at"), default=f"{of}state__slot_at"),
    )
    # Not KT, which takes the first part for the column.
    has_interval = IsNull(KeyTextTransform("schedule", f"{of}config"), True)  # noqa: FBT003
    interval = Case(
        When(has_interval, then=_duration(F(f"{of}interval_sec") * Value(_SECOND))), default=Value(SCHEDULE_PATIENCE)
    )
    patience = _duration(interval) + _duration(F(f"{of}timeout_ms") * Value(_MS)) + Value(LEASE_MARGIN)
    last_checked = f"{of}state__last_checked_at"
    due_ends, last_ends = (
        ExpressionWrapper(begins + _duration(patience), output_field=DateTimeField())
        for begins in (due_at, F(last_checked))
    )
    is_late = Q(LessThan(due_ends, now)) & (Q((last_checked, None)) | Q(LessThan(last_ends, now)))
    return is_late & ~Q((f"{of}type__in", types.waiting())) & Q((f"{of}enabled", True))


def count_stale(database: psycopg.Connection, *, now: datetime, most: int) -> Sequence[StaleGroup]:
    """Return stale monitors by reason, the most frequent first. Looks at about `most`. Raises psycopg.Error."""
    given = {"now": now, "most": most, "waiting": types.waiting(), "not_started": NOT_STARTED, "nowhere": NOWHERE}
    with database.cursor(row_factory=class_row(StaleGroup)) as cursor:
        return cursor.execute(_COUNT, given).fetchall()


def unobserved(monitor: Monitor, *, since: datetime, until: datetime) -> list[StatusChange]:
    """Return the changes to store for a stale period that ends. Incidents do not process them."""
    status = monitor.state.status
    return [
        StatusChange(monitor=monitor, kind=kind, at=at, before=status, after=status, processed_at=until)
        for kind, at in ((StatusChange.Kind.STALE, since), (StatusChange.Kind.CHECKED, until))
    ]


def _patience(monitor: Monitor) -> timedelta:
    has_schedule = monitor.config.get("schedule") is not None
    interval = SCHEDULE_PATIENCE if has_schedule else timedelta(seconds=monitor.interval_sec)
    return interval + timedelta(milliseconds=monitor.timeout_ms) + LEASE_MARGIN


def _duration(expression: Combinable) -> ExpressionWrapper[Any]:
    return ExpressionWrapper(expression, output_field=DurationField())
