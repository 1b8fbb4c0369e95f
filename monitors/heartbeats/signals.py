"""Record pings and missed deadlines of heartbeats, stored like all other results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction

from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.db import fetch_prepared
from monitors import metrics, types
from monitors.models import Monitor
from monitors.recording.batch import CheckRecord, StateBatch, lock_batch

# The complete effect of a ping on a heartbeat that is up and stays up, which is nearly every ping. It never waits for
# a lock: locked rows are left to `record_under_lock`. So are rows that changed after this statement began, because it
# would judge the new version of the state with the old configuration; `seen` is the old version. Therefore code that
# changes a column of Monitor used here must also write the monitor's state.
_STILL_UP = """
    WITH held AS (
        SELECT state.monitor_id, given.public_id, given.at, monitor.muted_until,
               (monitor.interval_sec::bigint + (monitor.config->>'grace_sec')::bigint) * interval '1 second' AS patience
          FROM unnest(%(public_ids)s::text[], %(times)s::timestamptz[]) AS given (public_id, at)
          JOIN monitors_monitor AS monitor ON monitor.public_id = given.public_id
          JOIN monitors_monitorstate AS state ON state.monitor_id = monitor.id
          JOIN monitors_monitorstate AS seen ON seen.monitor_id = monitor.id
         WHERE monitor.type = ANY(%(types)s::text[])
           AND monitor.enabled
           AND state.xmin = seen.xmin
           AND state.status = 'up'
           AND NOT state.fresh
           AND state.failures = 0
           AND state.passes = 0
           AND state.failing_since IS NULL
           AND state.status_since <= given.at
           AND state.last_ping_at <= given.at
           FOR NO KEY UPDATE OF state SKIP LOCKED
    ), pinged AS (
        UPDATE monitors_monitorstate AS state
           SET claim = state.claim + 1,
               applied_claim = state.claim + 1,
               claimed_at = NULL,
               armed_at = NULL,
               last_ping_at = held.at,
               last_checked_at = held.at,
               last_latency_ms = NULL,
               last_connect_ms = NULL,
               last_ttfb_ms = NULL,
               next_due_at = greatest(held.at + held.patience, held.muted_until)
          FROM held
         WHERE state.monitor_id = held.monitor_id
        RETURNING state.monitor_id, state.claim, held.public_id, held.at
    ), kept AS (
        INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict)
        SELECT monitor_id, claim, at, 'up' FROM pinged
    )
    SELECT public_id FROM pinged
"""


def keep_up(pings: Sequence[tuple[str, datetime]]) -> list[bool]:
    """Record the pings of heartbeats that are up and stay up. Return False for the others, which stay unrecorded.

    `pings` are pairs of public id and time. Durable when this returns.
    """
    times: dict[str, datetime] = {}
    for public_id, at in pings:
        times.setdefault(public_id, at)  # a heartbeat's second ping in a batch needs the slow path
    rows = fetch_prepared(
        _STILL_UP, {"public_ids": list(times), "times": list(times.values()), "types": types.waiting()}
    )
    metrics.PINGS.add(len(rows), "unchanged")
    kept = {public_id for (public_id,) in rows}
    answers = []
    for public_id, _ in pings:
        answers.append(public_id in kept)
        kept.discard(public_id)
    return answers


def record_under_lock(public_id: str, *, now: datetime) -> bool:
    """Record any ping, in any state and during concurrent changes. Return False if the heartbeat does not exist."""
    known = _record_under_lock(public_id, now=now)
    metrics.PINGS.add(1, "full" if known else "unknown")
    return known


def _record_under_lock(public_id: str, *, now: datetime) -> bool:
    heartbeats = Monitor.objects.filter(public_id=public_id, type__in=types.waiting())
    with transaction.atomic():
        batch = lock_batch(heartbeats.values_list("pk", flat=True))
        for monitor in batch.monitors.values():
            state = monitor.state
            # A concurrent ping or sweep may have a later time and get the lock first. Never move time backwards.
            now = max(filter(None, (now, state.last_ping_at, state.status_since)))
            state.last_ping_at = now
            if monitor.enabled:
                state.claim += 1
                state.armed_at = None
                _take(batch, monitor, CheckOutcome(Verdict.UP, now))
                state.next_due_at = monitor.ping_due_at()
            batch.move(state)
        batch.write()
    return bool(batch.monitors)


def sweep(monitor_ids: Collection[int], *, now: datetime) -> None:
    """Judge claimed heartbeats: those past their deadline are down since then, the others are next due at it.

    The lock orders a sweep and a concurrent ping: the second one sees the changes of the first.
    """
    with transaction.atomic():
        batch = lock_batch(monitor_ids)
        claimed = [one for one in batch.monitors.values() if one.enabled and one.state.claimed_at is not None]
        late = sum(_judge(batch, monitor, now=now) for monitor in claimed)
        batch.write()
    metrics.HEARTBEATS_MISSED.add(late)


def _judge(batch: StateBatch, monitor: Monitor, *, now: datetime) -> bool:
    """Judge one heartbeat. Return whether its deadline has passed."""
    state, deadline, due_at = monitor.state, monitor.ping_deadline, monitor.ping_due_at()
    state.claimed_at = None
    state.next_due_at = due_at
    batch.move(state)
    if deadline is None or due_at is None:
        return False
    if now > due_at:
        text = f"No ping came within {monitor.interval_sec} s and {monitor.config['grace_sec']} s of grace."
        _take(batch, monitor, CheckOutcome(Verdict.DOWN, due_at, reason_code=ReasonCode.HEARTBEAT_MISSED, detail=text))
        state.next_due_at = None  # down: only a ping can change that
        return True
    if state.fresh and now <= deadline:
        # Resumed before its deadline: the first judgement after resuming records it as up.
        _take(batch, monitor, CheckOutcome(Verdict.UP, now))
    return False


def _take(batch: StateBatch, monitor: Monitor, outcome: CheckOutcome) -> None:
    """Record the outcome for the current claim, and close the claim."""
    monitor.state.claimed_at = None
    record = CheckRecord(monitor.pk, monitor.state.claim, monitor.config_version, outcome)
    batch.keep(record)
    batch.apply(record)
