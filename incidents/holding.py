"""Hold the alerts of a monitor that depends on another one, its parent, that is down or may be.

What is held follows from the rows of parents and children at that time, and not from what an earlier run noted. So the
order of events does not matter, nor does a process that dies between two of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db import connection, transaction

from checks.results.history import NO_REASON, micros, verdict_of
from checks.results.hours import HOUR_OF_CHECK, PLAIN_FOR, start_of_hour
from checks.results.selectors import history_of
from checks.spec import Verdict
from core.bulk import array
from core.errors import HistoryUnavailable
from incidents.models import Incident
from monitors import types
from monitors.checking import on_demand
from monitors.recording import fast_path
from monitors.state import LEAST_APART

RECENT = timedelta(seconds=15)
"""A parent that was checked within this time before its child was down, and since that began to fail, is not checked
again."""
LONGEST_DOUBT = timedelta(minutes=5)
"""How long alerts are held while no parent is down."""


class Cause(StrEnum):
    """Why alerts are held: what is known about the parent."""

    DOWN = "down"
    FAILING = "failing"  # not confirmed
    UNCHECKED = "unchecked"  # since the child is down
    RECOVERED = "recovered"  # and the child was not checked often enough since


_ORDER = (Cause.DOWN, Cause.FAILING, Cause.UNCHECKED, Cause.RECOVERED)
# A first failure sets the status too, but its outage is not confirmed. See `monitors.state.Status.is_confirmed`.
_IS_DOWN = "state.status = 'down' AND NOT state.fresh AND state.failures = 0 AND state.failing_since IS NOT NULL"
# The first and the last recovery since the child failed come from an index of recoveries: the history may be long.
_PARENTS = f"""
    SELECT incident.id, parent.id, coalesce(nullif(parent.name, ''), nullif(left(parent.url, 100), ''), parent.type),
           parent.type, {_IS_DOWN}, state.failures > 0, state.failing_since, state.last_checked_at,
           state.last_checked_at - coalesce(state.last_latency_ms, 0) * interval '1 millisecond',
           state.claimed_at IS NOT NULL, recovery.last_at, outage.began_at
      FROM incidents_incident AS incident
      JOIN monitors_dependency AS dependency ON dependency.child_id = incident.monitor_id
      JOIN monitors_monitor AS child ON child.id = dependency.child_id
      JOIN monitors_monitor AS parent ON parent.id = dependency.parent_id AND parent.owner_id = child.owner_id
      JOIN monitors_monitorstate AS state ON state.monitor_id = parent.id
      LEFT JOIN LATERAL (
            SELECT min(change.at) AS first_at, max(change.at) AS last_at
              FROM monitors_statuschange AS change
             WHERE change.monitor_id = parent.id AND change.kind = 'status' AND change.at > incident.started_at
               AND change.before = 'down' AND change.after IN ('up', 'slow')
           ) AS recovery ON true
      LEFT JOIN LATERAL (
            SELECT coalesce(change.failing_since, change.at) AS began_at
              FROM monitors_statuschange AS change
             WHERE change.monitor_id = parent.id AND change.kind = 'status' AND change.at < recovery.first_at
               AND change.after = 'down'
             ORDER BY change.at DESC
             LIMIT 1
           ) AS outage ON true
     WHERE incident.id = ANY(%(incidents)s::bigint[])
       AND parent.enabled AND (parent.muted_until IS NULL OR parent.muted_until <= %(now)s)
     ORDER BY incident.id, dependency.position
"""  # noqa: S608
_CHECKS_SINCE = f"""
    SELECT given.incident_id, count(result.*)
      FROM unnest(%(incidents)s::bigint[], %(monitors)s::bigint[], %(since)s::timestamptz[], %(hours)s::timestamptz[],
                  %(wanted)s::int[], %(timeouts)s::int[])
                AS given (incident_id, monitor_id, since, hour, wanted, timeout_ms)
     CROSS JOIN LATERAL (
            SELECT
              FROM checks_checkresult
             WHERE monitor_id = given.monitor_id AND {HOUR_OF_CHECK} >= given.hour AND checked_at > given.since
               AND checked_at - coalesce(latency_ms, given.timeout_ms) * interval '1 millisecond' > given.since
               AND verdict = 'down' AND confirmed IS DISTINCT FROM false
             LIMIT given.wanted
           ) AS result
     GROUP BY given.incident_id
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class _Parent:
    """A parent that may hold, as seen for one incident. `is_failing`: its outage is not confirmed."""

    incident_id: int
    monitor_id: int
    name: str
    type: str
    is_down: bool
    is_failing: bool
    failing_since: datetime | None
    last_checked_at: datetime | None
    asked_at: datetime | None
    """When that check began: a slow answer shows what was true then."""
    is_claimed: bool
    recovered_at: datetime | None
    """The last recovery since the incident began."""
    outage_began_at: datetime | None
    """When the outage began that ended with the first of these recoveries."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the alerts of an incident are held, by which parent."""

    cause: Cause
    parent_id: int
    parent: str


@dataclass(slots=True)
class Holds:
    """By incident, which alerts are held. `unchecked` are the parents that are to be checked at once."""

    of: dict[int, Hold] = field(default_factory=dict)
    unchecked: set[int] = field(default_factory=set)


def find(incidents: Sequence[Incident], *, now: datetime) -> Holds:
    """Return which of these incidents, with their monitors, are held: open ones, and others not alerted about yet."""
    by_id = {one.pk: one for one in incidents if one.monitor_id is not None and (one.is_open or not one.announced_at)}
    parents = _parents(by_id, now=now)
    holds = Holds()
    recovered: dict[int, _Parent] = {}
    for key, own in parents.items():
        incident = by_id[key]
        causes = {cause: parent for parent in reversed(own) if (cause := _cause(incident, parent, now=now))}
        if first := next((cause for cause in _ORDER if cause in causes), None):
            holds.of[key] = Hold(first, causes[first].monitor_id, causes[first].name)
        if first is Cause.RECOVERED:
            recovered[key] = max((parent for parent in own if parent.recovered_at), key=_recovered_at)
        holds.unchecked |= {parent.monitor_id for parent in own if _is_to_be_checked(incident, parent, now=now)}
    for key in _checked_enough(
        {key: (by_id[key], _recovered_at(parent)) for key, parent in recovered.items()}, now=now
    ):
        del holds.of[key]
    return holds


def check_parents(monitor_ids: Collection[int], *, now: datetime) -> None:
    """Check these parents at once, except those that another transaction has locked: a later run finds them again."""
    if monitor_ids:
        with transaction.atomic():
            locked = fast_path.try_lock_states(sorted(monitor_ids))
            on_demand.begin(set(monitor_ids) - locked, now=now)


def _parents(incident_ids: Collection[int], *, now: datetime) -> Mapping[int, list[_Parent]]:
    found: dict[int, list[_Parent]] = defaultdict(list)
    if incident_ids:
        with connection.cursor() as cursor:
            cursor.execute(_PARENTS, {"incidents": array(incident_ids), "now": now})
            for row in cursor.fetchall():
                found[row[0]].append(_Parent(*row))
    return found


def _cause(incident: Incident, parent: _Parent, *, now: datetime) -> Cause | None:
    """Return why this parent holds the alerts of the incident, or None if it does not."""
    ended = incident.resolved_at
    if ended is not None:
        return _cause_of_past(parent, ended, now=now)
    assert incident.confirmed_at is not None
    if parent.is_down:
        return Cause.DOWN
    if parent.is_failing:
        return Cause.FAILING if now - incident.confirmed_at <= LONGEST_DOUBT else None
    if _is_unchecked(incident, parent, now=now):
        return Cause.UNCHECKED
    return None if parent.recovered_at is None or incident.announced_at else Cause.RECOVERED


def _cause_of_past(parent: _Parent, ended: datetime, *, now: datetime) -> Cause | None:
    """Return why no alert is sent of an outage that was over before one was."""
    if parent.outage_began_at is not None and parent.outage_began_at <= ended:
        return Cause.DOWN
    if parent.failing_since is None or parent.failing_since > ended:
        return None
    if parent.is_down:
        return Cause.DOWN
    return Cause.FAILING if parent.is_failing and now - ended <= LONGEST_DOUBT else None


def _is_unchecked(incident: Incident, parent: _Parent, *, now: datetime) -> bool:
    """Return whether the parent's first check since the monitor is down is missing, and may still come."""
    assert incident.confirmed_at is not None
    if not types.get(parent.type).polls or now - incident.confirmed_at > LONGEST_DOUBT:
        return False
    return parent.asked_at is None or parent.asked_at < max(incident.started_at, incident.confirmed_at - RECENT)


def _is_to_be_checked(incident: Incident, parent: _Parent, *, now: datetime) -> bool:
    """Return whether to check the parent now. The checks that confirm its outage follow each other at once."""
    is_waiting = incident.is_open and incident.announced_at is None and not parent.is_down and not parent.is_claimed
    if not is_waiting or incident.confirmed_at is None or not types.get(parent.type).polls:
        return False
    if parent.is_failing:
        is_pause_over = parent.last_checked_at is None or now - parent.last_checked_at >= LEAST_APART
        return is_pause_over and now - incident.confirmed_at <= LONGEST_DOUBT
    return _is_unchecked(incident, parent, now=now)


def _recovered_at(parent: _Parent) -> datetime:
    assert parent.recovered_at is not None
    return parent.recovered_at


def _checked_enough(recovered: Mapping[int, tuple[Incident, datetime]], *, now: datetime) -> Collection[int]:
    """Return the incidents whose monitors failed often enough since these recoveries.

    That is `fail_threshold` times, in checks that began later, or for one that waits for pings until its next deadline.
    """
    enough: set[int] = set()
    polled: dict[int, tuple[Incident, datetime]] = {}
    for key, (incident, at) in recovered.items():
        assert incident.monitor is not None
        if not incident.monitor.kind.waits:
            polled[key] = incident, at
        elif now > incident.monitor.ping_deadline_after(at):
            enough.add(key)
    if polled:
        wanted = {key: incident.monitor.fail_threshold for key, (incident, _) in polled.items() if incident.monitor}
        given: dict[str, Any] = {
            "incidents": array(polled),
            "monitors": array(incident.monitor_id for incident, _ in polled.values()),
            "since": array(at for _, at in polled.values()),
            "hours": array(start_of_hour(at) for _, at in polled.values()),
            "wanted": array(wanted.values()),
            "timeouts": array(incident.monitor.timeout_ms for incident, _ in polled.values() if incident.monitor),
        }
        with connection.cursor() as cursor:
            cursor.execute(_CHECKS_SINCE, given)
            enough |= {key for key, count in cursor.fetchall() if count >= wanted[key]}
        for key, (incident, at) in polled.items():
            if key in enough or at >= now - PLAIN_FOR:
                continue
            try:
                failed = _failed_since(incident, at, now=now)
            except HistoryUnavailable:  # an alert too many is better than none
                failed = wanted[key]
            if failed >= wanted[key]:
                enough.add(key)
    return enough


def _failed_since(incident: Incident, at: datetime, *, now: datetime) -> int:
    """Count as _CHECKS_SINCE does, also packed results: rare, as the monitor is checked less than once an hour.

    Raises HistoryUnavailable.
    """
    assert incident.monitor is not None
    assert incident.monitor_id is not None
    timeout, least = incident.monitor.timeout_ms, micros(at)
    return sum(
        verdict_of(kind) is Verdict.DOWN
        and past.reasons.get((moment, claim), NO_REASON).confirmed is not False
        and moment - (timeout if latency_ms is None else latency_ms) * 1_000 > least
        for past in history_of(incident.monitor_id, at, now)
        for moment, claim, latency_ms, kind in past.rows()
    )
