"""Claim due monitors, return claims, and detect stops of the scheduler and changes of PostgreSQL's clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import QuerySet

from core.bulk import array
from locations.models import DEFAULT
from locations.selectors import online_agents
from monitors import types
from monitors.heartbeats import gaps
from monitors.locking import lock_monitors, write_columns
from monitors.models import LEASE_MARGIN, NOBODY, MonitorState, SchedulerGap, SchedulerTick
from monitors.recording import fast_path
from monitors.scheduling import clock_steps
from monitors.stale import LOST, NOWHERE

STOPPED_AFTER = timedelta(seconds=30)
REFUSED_BEFORE = timedelta(seconds=20)
"""Writes may have failed for up to this time before a successful tick, which tests them less often."""
SHORT_STOP = timedelta(seconds=5)
"""A shorter time between two ticks is usual. A longer one, up to STOPPED_AFTER, moves deadlines only."""
MOST_ORDERED = 4_000
LATE = timedelta(seconds=10)
"""A check that is postponed for longer counts as prevented."""
Agents = Mapping[str, Sequence[int]]
"""The keys of agents that are online, by the public ids of their locations. Without workers that of the default
location has none."""
POSTPONED_LEAD_SEC = 1.0  # a tick: checks that come back too early wait for their turn, late ones miss it


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one check of one monitor. The monitor's id and the number identify its result.

    `lost`: a scheduler fired the slot under an earlier claim, whose result is unknown. `again`: the lease of an
    earlier claim expired. `agent_id`: who makes the check; None: a worker, NOBODY: no location of it is online.
    """

    monitor_id: int
    number: int
    type: str = types.DEFAULT
    config_version: int = 1
    lost: bool = False
    again: bool = False
    agent_id: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.monitor_id, self.number


class Excess(NamedTuple):
    """A due monitor whose agent has no room for its check."""

    monitor_id: int
    agent_id: int
    owner_id: int


# The agent for the next claim of a monitor with locations. Those that are online take turns by the number of the claim,
# and so do the agents of each; a trigger is sent from the first one. 0 are the workers of the default location.
_AGENT = """
    CASE WHEN monitor.locations IS NULL THEN NULL ELSE nullif(coalesce((
        SELECT (%(agents)s::bigint[])[place.start + 1 + (state.monitor_id + state.claim) %% place.count]
          FROM (SELECT known.start, known.count, count(*) OVER () AS total,
                       row_number() OVER (ORDER BY own.position) AS number
                  FROM jsonb_array_elements_text(monitor.locations) WITH ORDINALITY AS own (name, position)
                  JOIN unnest(%(places)s::text[], %(starts)s::int[], %(counts)s::int[])
                           AS known (name, start, count) USING (name)) AS place
         WHERE place.number = CASE WHEN monitor.type = ANY(%(firing)s) THEN 1
                                   ELSE 1 + (state.claim + 1) %% place.total END
    ), -1), 0) END
"""

# SKIP LOCKED lets any number of beats claim at once, each monitor going to one of them. After an expired lease the
# slot stays that of the first attempt, so that the next slot is counted from it.
#
# Accounts take turns: the most overdue monitor of each comes before the second one of any. If more are due than there
# is room for, their owners are read first, of at most `most`: the window function reads all rows that it orders. If all
# can be claimed, now or by the next calls, that is left out, as it takes time. Those of some types are claimed in any
# order: the dispatcher repeats it until none is left.
_MORE_ARE_DUE = """
    SELECT count(*) > %(room)s
      FROM (
            SELECT
              FROM monitors_monitorstate
             WHERE next_due_at <= %(now)s
             ORDER BY next_due_at  -- or the planner reads the table: by old statistics nearly all rows are due
             LIMIT %(room)s + 1
           ) AS due
"""
_OLDEST = """
    FROM monitors_monitorstate AS state
   WHERE next_due_at <= %(now)s
   ORDER BY next_due_at
   LIMIT %(limit)s
"""
_OF_TYPES = """
    FROM monitors_monitorstate AS state
    JOIN monitors_monitor AS monitor ON monitor.id = monitor_id
   WHERE next_due_at <= %(now)s
     AND monitor.type = ANY(%(types)s)
   LIMIT %(limit)s
"""
_IN_TURNS = """
    FROM monitors_monitorstate AS state
    JOIN (
        SELECT monitor_id
          FROM (
                SELECT state.monitor_id, state.next_due_at, monitor.owner_id
                  FROM monitors_monitorstate AS state
                  JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
                 WHERE state.next_due_at <= %(now)s
                 ORDER BY state.next_due_at
                 LIMIT %(most)s
               ) AS oldest
         ORDER BY row_number() OVER (PARTITION BY owner_id ORDER BY next_due_at), next_due_at
         LIMIT %(limit)s
         ) AS due USING (monitor_id)
   WHERE state.next_due_at <= %(now)s
"""
_CLAIM = """
    WITH held AS MATERIALIZED (
        SELECT monitor_id, claim, next_due_at AS due_at,
               coalesce(claimed_at IS NOT NULL AND started_slot = slot_at, false) AS lost,
               coalesce(claimed_at <= %(margin_began)s, false) AS again
        {due}
           FOR UPDATE OF state SKIP LOCKED
    ){placed}, claimed AS (
        UPDATE monitors_monitorstate AS state
           SET claim = state.claim + 1,
               slot_at = CASE WHEN state.claimed_at IS NULL THEN state.next_due_at ELSE state.slot_at END,
               claimed_at = %(now)s,
               next_due_at = %(margin_end)s + monitor.timeout_ms * interval '1 millisecond',
               agent_id = {agent},
               fault = CASE WHEN held.again THEN coalesce(state.fault, %(lost)s) ELSE state.fault END,
               fault_since = CASE WHEN held.again THEN coalesce(state.fault_since, state.slot_at)
                                  ELSE state.fault_since END
          FROM monitors_monitor AS monitor, {held} AS held
         WHERE state.monitor_id = held.monitor_id AND monitor.id = held.monitor_id
        RETURNING state.monitor_id, state.claim, monitor.type, monitor.config_version, held.lost, held.again,
                  state.agent_id, true AS has_room, monitor.owner_id, held.due_at
    )
    SELECT monitor_id, claim, type, config_version, lost, again, agent_id, has_room, owner_id
      FROM (TABLE claimed{excess}) AS found
     ORDER BY row_number() OVER (PARTITION BY has_room, agent_id, owner_id ORDER BY due_at), due_at
"""
# Only with agents: it takes a quarter of the statement's time.
_PLACED = f""", assigned AS MATERIALIZED (
        SELECT state.*, monitor.owner_id, {_AGENT} AS agent_id
          FROM held AS state
          JOIN monitors_monitor AS monitor ON monitor.id = monitor_id
    ), ordered AS (
        SELECT *, row_number() OVER (PARTITION BY agent_id, owner_id ORDER BY due_at) AS turn FROM assigned
    ), placed AS MATERIALIZED (
        SELECT ordered.*,
               lost OR room IS NULL
                   OR row_number() OVER (PARTITION BY agent_id, lost ORDER BY turn, due_at) <= room AS has_room
          FROM ordered
          LEFT JOIN unnest(%(agents)s::bigint[], %(rooms)s::int[]) AS known (agent_id, room) USING (agent_id)
    )"""  # noqa: S608
_EXCESS = """
            UNION ALL
            SELECT monitor_id, NULL, NULL, NULL, lost, again, agent_id, has_room, owner_id, due_at
              FROM placed
             WHERE NOT has_room"""
_WITHOUT_ROOMS = {"placed": "", "held": "held", "agent": _AGENT, "excess": ""}
_WITHIN_ROOMS = {
    "placed": _PLACED,
    "held": "(SELECT * FROM placed WHERE has_room)",
    "agent": "held.agent_id",
    "excess": _EXCESS,
}
# Not those that others have locked or claimed since. The next location or agent has the next turn. A fault is stored
# before the monitor is stale, but not for a short delay, as it makes recording the result slow.
_POSTPONE_EXCESS = """
    WITH given AS (
        SELECT monitor_id, seconds, interval_sec, coalesce(
                   last_checked_at + (interval_sec - seconds) * interval '1 second' < %(late)s, true) AS is_late
          FROM monitors_monitorstate AS state
          JOIN unnest(%(ids)s::bigint[], %(seconds)s::float8[]) AS excess (monitor_id, seconds) USING (monitor_id)
          JOIN monitors_monitor AS monitor ON monitor.id = monitor_id
         WHERE next_due_at <= %(now)s
           FOR UPDATE OF state SKIP LOCKED
    )
    UPDATE monitors_monitorstate AS state
       SET claim = claim + CASE WHEN claimed_at IS NULL THEN 1 ELSE 0 END,
           next_due_at = %(now)s + least(interval_sec, seconds) * interval '1 second',
           fault = CASE WHEN is_late THEN %(fault)s ELSE fault END,
           fault_since = CASE WHEN is_late THEN coalesce(
               fault_since, CASE WHEN claimed_at IS NULL THEN next_due_at ELSE slot_at END) ELSE fault_since END
      FROM given
     WHERE state.monitor_id = given.monitor_id
"""


# A check on demand does not move the schedule: the next slot is counted from the last one, as without this check.
_CLAIM_NOW = f"""
    UPDATE monitors_monitorstate AS state
       SET claim = state.claim + 1,
           slot_at = CASE WHEN state.claimed_at IS NULL AND state.next_due_at <= %(now)s THEN state.next_due_at
                          ELSE coalesce(state.slot_at, %(now)s) END,
           claimed_at = %(now)s,
           next_due_at = %(margin_end)s + monitor.timeout_ms * interval '1 millisecond',
           agent_id = {_AGENT}
      FROM monitors_monitor AS monitor
     WHERE state.monitor_id = ANY(%(ids)s::bigint[]) AND monitor.id = state.monitor_id
       AND monitor.enabled AND monitor.type = ANY(%(types)s)
    RETURNING state.monitor_id, state.claim
"""  # noqa: S608
_RETURN_LEASES = """
    UPDATE monitors_monitorstate
       SET next_due_at = least(slot_at, %(now)s), claimed_at = NULL
     WHERE monitor_id = ANY(%(ids)s::bigint[])
       AND agent_id <> ALL(%(agents)s::bigint[])
       AND claimed_at IS NOT NULL
       AND started_slot IS DISTINCT FROM slot_at
       AND monitor_id NOT IN (SELECT monitor_id FROM monitors_verification)
"""
# The time is drawn once for each monitor.
_RESUME = """
    UPDATE monitors_monitorstate AS state
       SET next_due_at = least(state.next_due_at, %(now)s + random() * %(within)s)
      FROM monitors_monitor AS monitor
     WHERE state.monitor_id = ANY(%(ids)s::bigint[])
       AND monitor.id = state.monitor_id
       AND state.agent_id = %(nobody)s AND state.claimed_at IS NULL AND state.fault = %(nowhere)s
       AND jsonb_exists_any(monitor.locations, %(locations)s::text[])
"""


def claim_due(
    now: datetime, *, limit: int, only: list[str] | None = None, agents: Agents | None = None, room: int | None = None
) -> list[Claim]:
    """Claim at most `limit` due monitors: the most overdue first, in turns by account, or any of `only` these types.

    `agents` are those that are online. Committed when this returns. `room`: how many the caller can claim with further
    calls. If no more are due, they need no turns.
    """
    claims, _ = claim_within(now, limit=limit, only=only, agents=agents or {}, rooms={}, room=room)
    return claims


def claim_within(
    now: datetime,
    *,
    limit: int,
    only: list[str] | None = None,
    agents: Agents,
    rooms: Mapping[int, int],
    room: int | None = None,
) -> tuple[list[Claim], list[Excess]]:
    """Claim as `claim_due`, and no more checks for an agent than its room, if that is known.

    Return the claims and the excess, each in turns by account, at most `limit` in total.
    """
    values: dict[str, Any] = {
        **_places(agents),
        "now": now,
        "margin_began": now - LEASE_MARGIN,
        "margin_end": now + LEASE_MARGIN,
        "lost": LOST,
        "limit": limit,
        "room": limit if room is None else room,
        "most": max(limit, MOST_ORDERED),
        "types": only,
    }
    values["rooms"] = [rooms.get(agent) for agent in values["agents"]]
    with connection.cursor() as cursor:
        due = _OF_TYPES
        if only is None:
            cursor.execute(_MORE_ARE_DUE, values)
            due = _IN_TURNS if cursor.fetchone() == (True,) else _OLDEST
        cursor.execute(_CLAIM.format(due=due, **(_WITHIN_ROOMS if rooms else _WITHOUT_ROOMS)), values)
        rows = cursor.fetchall()
    claims = [Claim(*claim) for *claim, has_room, _ in rows if has_room]
    return claims, [Excess(row[0], row[6], owner_id) for *row, has_room, owner_id in rows if not has_room]


def postpone_excess(excess: Mapping[int, float], fault: str, *, now: datetime) -> None:
    """Postpone due monitors by these seconds, at most by their interval. Store the fault if the check is then late."""
    with connection.cursor() as cursor:
        times = {"now": now, "late": now - LATE}
        seconds = array(excess.values())
        cursor.execute(_POSTPONE_EXCESS, {**times, "ids": array(excess), "seconds": seconds, "fault": fault})


def _places(agents: Agents) -> dict[str, Any]:
    """Return the parameters of `_AGENT`."""
    places = {name: keys for name, keys in {DEFAULT: [0], **agents}.items() if keys}
    counts = [len(each) for each in places.values()]
    return {
        "places": [*places],
        "counts": counts,
        "starts": [sum(counts[:number]) for number in range(len(counts))],
        "agents": [agent for each in places.values() for agent in each],
        "firing": types.firing(),
    }


def claim_now(monitor_ids: Collection[int], *, now: datetime) -> dict[int, int]:
    """Claim these monitors for a check on demand, and return the claims by monitor. Committed when this returns.

    Paused and deleted monitors, heartbeats and schedulers are left out. A running check continues; its result counts
    as the older of the two.
    """
    with transaction.atomic():
        # Lock in a separate statement: the next one then sees the changes of earlier lock holders.
        fast_path.lock_states(list(monitor_ids))
        with connection.cursor() as cursor:
            times = {"now": now, "margin_end": now + LEASE_MARGIN, **_places(online_agents(now))}
            cursor.execute(_CLAIM_NOW, {**times, "ids": array(monitor_ids), "types": types.polling()})
            return dict(cursor.fetchall())


def agents_of(claims: Mapping[int, int]) -> dict[int, int]:
    """Return who makes the checks of these claims, by monitor, without those of workers."""
    given = MonitorState.objects.filter(monitor__in=list(claims), agent_id__isnull=False)
    found = given.values_list("pk", "claim", "agent_id")
    return {key: agent for key, claim, agent in found if agent is not None and claim == claims[key]}


def return_leases(*, except_of: Collection[int], now: datetime) -> None:
    """Give back the claims of all agents but these. Their monitors are due at once.

    Failures that they saw are still verified. A trigger that may have been sent is recorded as lost when its lease
    expires.
    """
    leased = MonitorState.objects.filter(agent_id__gt=NOBODY, claimed_at__isnull=False).exclude(agent_id__in=except_of)
    _change_located(leased, _RETURN_LEASES, {"agents": array(except_of), "now": now})


def resume(locations: Sequence[str], *, within: timedelta, now: datetime) -> None:
    """Make monitors due, within this time, that were postponed while none of their locations was online."""
    waiting = MonitorState.objects.filter(fault_since__isnull=False, fault=NOWHERE, agent_id=NOBODY, claimed_at=None)
    given = {"now": now, "within": within, "nobody": NOBODY, "nowhere": NOWHERE, "locations": [*locations]}
    if locations:
        _change_located(waiting.filter(next_due_at__gt=now + within), _RESUME, given)


def _change_located(states: QuerySet[MonitorState], statement: str, given: Mapping[str, Any]) -> None:
    with transaction.atomic():
        if keys := list(states.values_list("pk", flat=True)):
            fast_path.lock_states(keys)
            with connection.cursor() as cursor:
                cursor.execute(statement, {**given, "ids": array(keys)})


def start_runs(claims: Collection[tuple[int, int]], *, now: datetime) -> set[tuple[int, int]]:
    """Mark the slots of schedulers as fired before they are. Return the (monitor, claim) that are still to be fired.

    Committed when this returns, so no slot is fired twice, however often its message is delivered. Their leases begin
    again: a slot without a result is recorded as lost when its lease expires.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET started_slot = state.slot_at,
                   next_due_at = %s + monitor.timeout_ms * interval '1 millisecond'
              FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (monitor_id, claim)
              JOIN monitors_monitor AS monitor ON monitor.id = wanted.monitor_id
             WHERE state.monitor_id = wanted.monitor_id
               AND state.claim = wanted.claim
               AND state.claimed_at IS NOT NULL
               AND (state.started_slot IS NULL OR state.started_slot < state.slot_at)
            RETURNING state.monitor_id, state.claim
            """,
            [now + LEASE_MARGIN, [monitor_id for monitor_id, _ in claims], [claim for _, claim in claims]],
        )
        return set(cursor.fetchall())


def return_claims(claims: Collection[tuple[int, int]], *, now: datetime) -> None:
    """Give back (monitor, claim) pairs that will not be checked here. Their monitors are due at once.

    A scheduler's slot that was fired stays claimed, and is recorded as lost when its lease expires.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET next_due_at = least(state.slot_at, %s), claimed_at = NULL
              FROM unnest(%s::bigint[], %s::bigint[]) AS given (monitor_id, claim)
             WHERE state.monitor_id = given.monitor_id
               AND state.claim = given.claim
               AND state.claimed_at IS NOT NULL
               AND state.started_slot IS DISTINCT FROM state.slot_at
            """,
            [now, [monitor_id for monitor_id, _ in claims], [claim for _, claim in claims]],
        )


def postpone(postponed: Mapping[tuple[int, int], tuple[str, float]], *, now: datetime) -> None:
    """Give back (monitor, claim) pairs whose checks a limit prevented. Their slots move to when their turn is.

    `postponed` has the reason of each, and in how many seconds its turn is. Monitors of one address that were due
    together are due one after the other from then on. None is due later than after its interval: the others that wait
    may be gone by then.
    """
    _note_faults(
        postponed,
        ", claimed_at = NULL,"
        " next_due_at = %(now)s + make_interval(secs => least(monitor.interval_sec, given.seconds - %(lead)s))",
        {"now": now, "lead": POSTPONED_LEAD_SEC},
    )


def note_faults(faults: Mapping[tuple[int, int], str]) -> None:
    """Store why the checks of these (monitor, claim) pairs were not made. They are due when their leases expire."""
    _note_faults({key: (fault, 0.0) for key, fault in faults.items()}, "", {})


def _note_faults(faults: Mapping[tuple[int, int], tuple[str, float]], also: str, given: Mapping[str, Any]) -> None:
    if not faults:
        return
    with transaction.atomic():
        fast_path.lock_states([monitor_id for monitor_id, _ in faults])
        with connection.cursor() as cursor:
            cursor.execute(
                f"""
                UPDATE monitors_monitorstate AS state
                   SET fault = given.fault, fault_since = coalesce(state.fault_since, state.slot_at) {also}
                  FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(faults)s::text[], %(seconds)s::float8[])
                           AS given (monitor_id, claim, fault, seconds), monitors_monitor AS monitor
                 WHERE state.monitor_id = given.monitor_id
                   AND state.claim = given.claim
                   AND state.claimed_at IS NOT NULL
                   AND monitor.id = state.monitor_id
                """,  # noqa: S608
                {
                    **given,
                    "ids": array(monitor_id for monitor_id, _ in faults),
                    "claims": array(claim for _, claim in faults),
                    "faults": array(fault for fault, _ in faults.values()),
                    "seconds": [seconds for _, seconds in faults.values()],
                },
            )


def tick(
    now: datetime,
    *,
    idle_for: timedelta | None = None,
    step: timedelta = timedelta(),
    refused_since: datetime | None = None,
) -> None:
    """Record a run of the scheduler. A long time since the last run is stored as a gap in the observed time.

    `idle_for`: the time since this process ended a tick, if it did. A scheduler that is slow has not stopped.
    `step`: by how much PostgreSQL's clock was set since this process's last tick; negative if it was set back.
    `refused_since`: since when PostgreSQL may have refused pings, if it has just ended.
    """
    with transaction.atomic():
        last, created = SchedulerTick.objects.select_for_update().get_or_create(id=1, defaults={"at": now})
        if created:
            return
        passed = now - last.at
        # Each process notices a step, and the first one gets over it: after its tick, the last one is close again.
        is_forward = clock_steps.TOLERANCE < step <= passed
        if min(step, passed) < -clock_steps.TOLERANCE and passed < timedelta():
            clock_steps.set_back(now, by=-min(step, passed))
        elif passed <= timedelta():
            return
        elif is_forward:
            clock_steps.set_forward(last.at, now, by=step)
        start = last.at
        # If the last tick is later, another process has got over it.
        is_refused = refused_since is not None and last.at - refused_since < REFUSED_BEFORE
        if is_refused and refused_since is not None:
            start = min(start, refused_since)
        if now - start > STOPPED_AFTER:
            gaps.end(start)
            SchedulerGap.objects.create(started_at=start, ended_at=now)
            _get_over(start, now)
        elif is_forward or is_refused or (passed > SHORT_STOP and (idle_for is None or idle_for > SHORT_STOP)):
            gaps.note_stop(start, now)
        SchedulerTick.objects.filter(id=1).update(at=now)


def _get_over(start: datetime, end: datetime) -> None:
    """Adjust due times after Pulsekeeper was stopped.

    Deadlines of heartbeats move by the length of the stop. Missed slots of schedulers are skipped, or run once now,
    depending on `missed`. Missed polls run once now, like any overdue check.
    """
    due = MonitorState.objects.filter(next_due_at__gte=start, next_due_at__lte=end, claimed_at=None)
    skipped = due.filter(monitor__type__in=types.firing()).exclude(monitor__config__missed="once")
    # Bulk operations lock monitors of all types in one key order.
    fast_path.lock_states([*gaps.affected(start, end), *skipped.values_list("pk", flat=True)])
    gaps.move_deadlines(start, end)
    with_schedule = skipped.exclude(monitor__config__schedule=None)
    locked = lock_monitors(with_schedule.values_list("pk", flat=True)).values()
    scheduled = [monitor for monitor in locked if monitor.state.claimed_at is None]
    for monitor in scheduled:
        monitor.state.next_due_at = monitor.next_slot(end, now=end)
    write_columns([monitor.state for monitor in scheduled], ["next_due_at"])
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_monitorstate AS state
               SET next_due_at = state.next_due_at + make_interval(secs => monitor.interval_sec::float8 * (
                   1 + floor(extract(epoch FROM %(end)s - state.next_due_at) / monitor.interval_sec)))
              FROM monitors_monitor AS monitor
             WHERE monitor.id = state.monitor_id
               AND monitor.type = ANY(%(types)s)
               AND monitor.config->>'schedule' IS NULL
               AND monitor.config->>'missed' IS DISTINCT FROM 'once'
               AND state.claimed_at IS NULL
               AND state.next_due_at BETWEEN %(start)s AND %(end)s
            """,
            {"start": start, "end": end, "types": types.firing()},
        )
