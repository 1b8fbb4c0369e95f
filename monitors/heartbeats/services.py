"""Record the signals of heartbeats and their missed deadlines, stored like all other results."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from django.db import transaction

from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.bulk import array, text_array
from core.db import LockTimeoutError, fetch_prepared, lock_timeout, write_page
from monitors import metrics, types
from monitors.cron import TZDATA_VERSION
from monitors.heartbeats import canary, gaps, log, runs
from monitors.heartbeats.incoming import MAX_BODY_BYTES_PER_HOUR, Signal
from monitors.models import Monitor, MonitorState, Ping
from monitors.recording.batch import CheckRecord, StateBatch, lock_batch
from monitors.slots import next_slot_sql

logger = logging.getLogger(__name__)

SWEEP_LOCK_SEC = 0.5
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)

# The complete effect of a ping on a heartbeat that is up and stays up, which is nearly every ping. It never waits for
# a lock: locked rows are left to `record_under_lock`. So are rows that changed after this statement began, because it
# would judge the new version of the state with the old configuration; `seen` is the old version. Therefore code that
# changes a column of Monitor used here must also write the monitor's state.
STILL_UP = f"""
    WITH held AS (
        SELECT state.monitor_id, given.*, monitor.muted_until,
               expected.at + (monitor.config->>'grace_sec')::bigint * interval '1 second' AS deadline
          FROM unnest(%(public_ids)s::text[], %(times)s::timestamptz[], %(exit_statuses)s::smallint[],
                      %(methods)s::text[], %(addresses)s::inet[], %(user_agents)s::text[])
                   AS given (public_id, at, exit_status, method, remote_addr, user_agent)
          JOIN monitors_monitor AS monitor ON monitor.public_id = given.public_id
          JOIN monitors_monitorstate AS state ON state.monitor_id = monitor.id
          JOIN monitors_monitorstate AS seen ON seen.monitor_id = monitor.id
         CROSS JOIN LATERAL (
               SELECT CASE WHEN monitor.config->>'schedule' IS NULL
                           THEN given.at + monitor.interval_sec * interval '1 second'
                           ELSE {next_slot_sql("given.at", tzdata="%(tzdata)s")} END
               ) AS expected (at)
         WHERE monitor.type = ANY(%(types)s::text[])
           AND monitor.enabled
           AND state.xmin = seen.xmin
           AND state.status = 'up'
           AND NOT state.fresh
           AND state.failures = 0
           AND state.passes = 0
           AND state.failing_since IS NULL
           AND state.runs IS NULL
           AND state.status_since <= given.at
           AND state.last_ping_at < given.at
           AND (state.last_signal_at IS NULL OR state.last_signal_at < given.at)
           AND expected.at IS NOT NULL
           FOR NO KEY UPDATE OF state SKIP LOCKED
    ), pinged AS (
        UPDATE monitors_monitorstate AS state
           SET claim = state.claim + 1,
               applied_claim = state.claim + 1,
               claimed_at = NULL,
               armed_at = NULL,
               last_ping_at = held.at,
               last_signal_at = held.at,
               last_checked_at = held.at,
               last_latency_ms = NULL,
               last_connect_ms = NULL,
               last_ttfb_ms = NULL,
               next_due_at = greatest(held.deadline, held.muted_until)
          FROM held
         WHERE state.monitor_id = held.monitor_id
        RETURNING state.claim, held.*
    ), kept AS (
        INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict)
        SELECT monitor_id, claim, at, 'up' FROM pinged
    ), logged AS (
        INSERT INTO monitors_ping (monitor_id, at, exit_status, kind, method, remote_addr, user_agent)
        SELECT monitor_id, at, exit_status, 'success', method, remote_addr, user_agent FROM pinged
    )
    SELECT public_id FROM pinged
"""  # noqa: S608


def keep_up(pings: Sequence[Signal]) -> list[bool]:
    """Record plain successes (`Signal.is_plain`) of heartbeats that are up and stay up, and have no open run.

    Return False for the others, which stay unrecorded. Durable when this returns.
    """
    first: dict[str, Signal] = {}
    for ping in pings:
        first.setdefault(ping.target.monitor_id, ping)  # each has one row in the statement
    given = list(first.values())
    addresses = [ping.remote_addr for ping in given if ping.remote_addr is not None]
    rows = fetch_prepared(
        STILL_UP,
        {
            "public_ids": text_array(first),
            "times": text_array([ping.at.isoformat() for ping in given]),
            "exit_statuses": array([ping.target.exit_status for ping in given]),
            "methods": text_array([ping.method for ping in given]),
            "addresses": text_array(addresses) if len(addresses) == len(given) else array(p.remote_addr for p in given),
            "user_agents": text_array([ping.user_agent for ping in given]),
            "types": types.waiting(),
            "tzdata": TZDATA_VERSION,
        },
    )
    metrics.PINGS.add(len(rows), "unchanged")
    kept = {public_id for (public_id,) in rows}
    answers = []
    for ping in pings:
        answers.append(ping.target.monitor_id in kept)
        kept.discard(ping.target.monitor_id)
    return answers


@dataclass(slots=True)
class Unlogged:
    """Signals of this transaction that are not in the log yet: their times, and when runs ended, by the heartbeat's key
    and the rid.
    """

    ends: dict[tuple[int, UUID], datetime] = field(default_factory=dict)
    times: dict[int, set[datetime]] = field(default_factory=lambda: defaultdict(set))


def record(signal: Signal) -> bool:
    """Record any signal, in any state and during concurrent changes. Return False if the heartbeat does not exist."""
    return bool(record_all([signal])[0])


def record_all(signals: Sequence[Signal], *, skip_locked: bool = False) -> list[bool | None]:
    """Record any signals in one transaction, as `record` does. Those of a locked heartbeat can be skipped.

    Return for each whether its heartbeat exists, or None if it was skipped.
    """
    heartbeats = Monitor.objects.filter(
        public_id__in={signal.target.monitor_id for signal in signals}, type__in=types.waiting()
    )
    keys = dict(heartbeats.values_list("public_id", "pk"))
    others = {signal.target.monitor_id for signal in signals} - keys.keys()
    with transaction.atomic():
        batch = lock_batch(keys.values(), skip_locked=skip_locked)
        entries, answers, unlogged = [], list[bool | None](), Unlogged()
        for signal in signals:
            monitor = batch.monitors.get(keys.get(signal.target.monitor_id, 0))
            if monitor is not None:
                entry = _take_signal(batch, monitor, _limit_body(batch, monitor.state, signal), unlogged)
                unlogged.times[monitor.pk].add(entry.at)
                entries.append(entry)
            answers.append(True if monitor else None if skip_locked and signal.target.monitor_id in keys else False)
        log.add(entries)
        batch.write()
        own = canary.note_seen(others) if others else set()
    counts = Counter(answers)
    metrics.PINGS.add(counts[True], "full")
    metrics.PINGS.add(counts[False] - sum(signal.target.monitor_id in own for signal in signals), "unknown")
    return [signal.target.monitor_id in own or answer for answer, signal in zip(answers, signals, strict=True)]


def _limit_body(batch: StateBatch, state: MonitorState, signal: Signal) -> Signal:
    """Return the signal, without its body if the bodies of its heartbeat's hour would exceed the limit."""
    if signal.body is None:
        return signal
    if state.bodies_since is None or signal.at >= state.bodies_since + HOUR:
        state.bodies_since, state.body_bytes = signal.at, 0
    size = (state.body_bytes or 0) + len(signal.body.encode())
    if size > MAX_BODY_BYTES_PER_HOUR:
        return signal._replace(body=None, body_dropped=True)
    state.body_bytes = size
    batch.move(state)
    return signal


def _next_time(state: MonitorState, signal: Signal) -> datetime:
    """Return the time of a signal: when it arrived, or just after the last one.

    A concurrent signal or sweep may have a later time and get the lock first. Time never moves backwards, and no two
    signals of a heartbeat have the same time, so the order of the log is the one in which they changed the state.
    """
    last = max(filter(None, (state.last_signal_at, state.last_ping_at, runs.latest(state.runs or {}))), default=None)
    at = max(filter(None, (signal.at, state.status_since, last and last + runs.MICROSECOND)))
    state.last_signal_at = at
    return at


def _take_signal(batch: StateBatch, monitor: Monitor, signal: Signal, unlogged: Unlogged) -> log.Entry:
    """Apply a signal to a locked heartbeat, and return its log entry. A paused one only notes when its job ran.

    The end of a run is added to `unlogged`.
    """
    state, kind = monitor.state, signal.target.kind
    open_runs: runs.Runs = state.runs or {}
    batch.move(state)
    ended_at = _end_after(monitor, signal, unlogged) if kind is Ping.Kind.START else None
    if ended_at is not None and signal.rid is not None:
        # In the log it comes before its end, which the rid finds.
        before = min(signal.at, ended_at - runs.MICROSECOND)
        return log.Entry(monitor.pk, signal, log.free_time(monitor, before, unlogged.times[monitor.pk]), None)
    at = _next_time(state, signal)
    if kind is Ping.Kind.LOG or ended_at is not None:
        return log.Entry(monitor.pk, signal, at, None)
    duration: timedelta | None = None
    if kind is Ping.Kind.START:
        if signal.rid is not None and runs.unwatched(open_runs) and str(signal.rid) not in open_runs:
            open_runs = runs.ended_unwatched(open_runs, log.last_signal(monitor, signal.rid, is_start=True))
        # The deadline of a run that is started in a pause must not bring the heartbeat down afterwards.
        open_runs = runs.started(open_runs, signal.rid, at, is_watched=monitor.enabled)
    else:
        open_runs, start = runs.ended(open_runs, signal.rid)
        if signal.rid is not None:
            if start is None and (monitor.pk, signal.rid) not in unlogged.ends:
                start = log.last_signal(monitor, signal.rid, is_start=True)
                open_runs = runs.ended_unwatched(open_runs, start)
            unlogged.ends[monitor.pk, signal.rid] = at
        duration = None if start is None else max(at - start, timedelta())
    patience = monitor.run_patience
    if kind is Ping.Kind.SUCCESS:
        state.last_ping_at = at
        open_runs = runs.without_overdue(open_runs, before=at - patience)
    state.runs = open_runs or None
    state.run_started_at = runs.oldest(open_runs)
    if monitor.enabled:
        if kind is not Ping.Kind.START:
            state.claim += 1
            _take(batch, monitor, _outcome(monitor, signal, duration, at))
        _reschedule(monitor, kind, at)
    duration_ms = None if duration is None else duration // timedelta(milliseconds=1)
    if duration_ms is not None:
        state.last_duration_ms = duration_ms
    return log.Entry(monitor.pk, signal, at, duration_ms)


def _end_after(monitor: Monitor, start: Signal, unlogged: Unlogged) -> datetime | None:
    """Return when the run ended that this signal started, if its end was recorded first.

    A job may send both without waiting, and signals of a locked heartbeat are recorded later than others.
    """
    state = monitor.state
    if start.rid is None:
        found = state.last_ping_at
    else:
        found = unlogged.ends.get((monitor.pk, start.rid))
        last = max(filter(None, (state.last_ping_at, state.last_checked_at)), default=None)
        if found is None and last is not None and start.at <= last:
            found = log.last_signal(monitor, start.rid, is_start=False)
    return found if found is not None and start.at <= found else None


def _outcome(monitor: Monitor, signal: Signal, duration: timedelta | None, at: datetime) -> CheckOutcome:
    """Return the outcome of a run that ended."""
    status = signal.target.exit_status
    if signal.target.kind is not Ping.Kind.SUCCESS:
        text = "The job reported a failure." if status is None else f"The job ended with exit status {status}."
        return _failure(at, text)
    shortest, longest = (monitor.options[name] for name in ("min_duration_sec", "max_duration_sec"))
    if duration is not None and shortest is not None and duration < timedelta(seconds=shortest):
        return _failure(at, f"the run took {duration // SECOND} s, at least {shortest} s was expected")
    if duration is not None and longest is not None and duration > timedelta(seconds=longest):
        return _failure(at, f"the run took {-(-duration // SECOND)} s, at most {longest} s was expected")
    return CheckOutcome(Verdict.UP, at)


def _failure(at: datetime, text: str) -> CheckOutcome:
    return CheckOutcome(Verdict.DOWN, at, reason_code=ReasonCode.HEARTBEAT_FAILED, detail=text)


def _reschedule(monitor: Monitor, kind: Ping.Kind, at: datetime) -> None:
    """Set `next_due_at` after a signal, and close the claim.

    Nothing is due while a heartbeat is down and did not begin to recover.
    """
    state = monitor.state
    state.claimed_at = None
    if kind is Ping.Kind.SUCCESS:
        state.armed_at = None
    elif kind is Ping.Kind.START and state.armed_at is not None:
        # The job runs, so a deadline that moved need not be waited for.
        state.armed_at = min(state.armed_at, at + monitor.run_patience)
    if state.fresh and state.next_due_at is not None:
        return  # resumed: it is judged at once, which sets it
    is_down = state.status == Verdict.DOWN and state.passes == 0 and not state.fresh
    state.next_due_at = None if is_down else monitor.ping_due_at()


def sweep(monitor_ids: Collection[int], *, now: datetime) -> bool:
    """Judge claimed heartbeats: those past their deadline are down since then, the others are next due at it.

    The lock orders a sweep and a concurrent ping: the second one sees the changes of the first. While pings cannot
    reach us, missed deadlines are held back. Return whether some wait for the canary to show that pings can.

    A heartbeat that another transaction keeps locked is judged when its claim expires: the scheduler must not wait for
    a long edit of one account.
    """
    is_awaited, left = _sweep(monitor_ids, now=now, skip_locked=True)
    if left:
        try:
            with transaction.atomic(), lock_timeout(SWEEP_LOCK_SEC):
                is_awaited |= _sweep(left, now=now)[0]
        except LockTimeoutError:
            logger.warning("%d heartbeats are judged later: another transaction has locked them", len(left))
    return is_awaited


def _sweep(monitor_ids: Collection[int], *, now: datetime, skip_locked: bool = False) -> tuple[bool, set[int]]:
    """Judge the heartbeats. Return whether some wait for the canary, and the keys of those locked or deleted."""
    with transaction.atomic():
        batch = lock_batch(monitor_ids, skip_locked=skip_locked)
        claimed = [one for one in batch.monitors.values() if one.enabled and one.state.claimed_at is not None]
        is_late = any(_is_late(monitor, now=now) for monitor in claimed)
        evidence = gaps.Evidence(now) if is_late else None
        judged = Counter(_judge(batch, monitor, evidence, now=now) for monitor in claimed)
        if judged[_Judgement.MISSED]:
            write_page()  # a ping could have been stored
        batch.write()
    metrics.HEARTBEATS_MISSED.add(judged[_Judgement.MISSED])
    return judged[_Judgement.AWAITED] > 0, set(monitor_ids) - batch.monitors.keys()


class _Judgement(Enum):
    IN_TIME = auto()
    MISSED = auto()
    HELD_BACK = auto()
    AWAITED = auto()


def _is_late(monitor: Monitor, *, now: datetime) -> bool:
    due_at = monitor.ping_due_at()
    return due_at is not None and now > due_at


def _judge(batch: StateBatch, monitor: Monitor, evidence: gaps.Evidence | None, *, now: datetime) -> _Judgement:
    """Judge one heartbeat. It is down if its deadline has passed. `evidence` is not None if that of any has."""
    state, deadline, due_at = monitor.state, monitor.ping_deadline, monitor.ping_due_at()
    state.claimed_at = None
    state.next_due_at = due_at
    batch.move(state)
    if due_at is None:
        return _Judgement.IN_TIME
    if now > due_at and evidence is not None:
        gap = evidence.gap
        if gap is not None and due_at >= gap.started_at:
            state.slot_at, state.armed_at, state.next_due_at = due_at, gap.held_until, gap.held_until
            return _Judgement.HELD_BACK
        if evidence.is_awaited(due_at):
            # It stays claimed, because a gap moves the deadline that slot_at keeps.
            state.claimed_at, state.slot_at, state.next_due_at = now, due_at, now + SECOND
            return _Judgement.AWAITED
        _take(batch, monitor, _missed(monitor, due_at))
        state.next_due_at = None  # down: only a ping can change that
        return _Judgement.MISSED
    if state.fresh and deadline is not None and now <= min(filter(None, (deadline, monitor.run_deadline))):
        # Resumed before its deadline: the first judgement after resuming records it as up.
        _take(batch, monitor, CheckOutcome(Verdict.UP, now))
    return _Judgement.IN_TIME


def _missed(monitor: Monitor, at: datetime) -> CheckOutcome:
    """Return the outcome of the earlier of the missed deadlines."""
    grace_sec, longest = monitor.options["grace_sec"], monitor.options["max_duration_sec"]
    text = f"No ping arrived within {_patience(monitor)}."
    ping, run = monitor.ping_deadline, monitor.run_deadline
    if run is not None and (ping is None or run < ping):
        if longest is not None:
            return _failure(at, f"the run did not end, at most {longest} s was expected")
        text = f"The run did not end within {grace_sec} s of its start."
    return CheckOutcome(Verdict.DOWN, at, reason_code=ReasonCode.HEARTBEAT_MISSED, detail=text)


def _patience(monitor: Monitor) -> str:
    """Return in words how long the missed ping was waited for."""
    grace_sec, schedule, expected = monitor.config["grace_sec"], monitor.schedule, monitor.ping_expected_at
    if schedule is None or expected is None:
        return f"{monitor.interval_sec} s and {grace_sec} s of grace"
    return f"{grace_sec} s of {schedule.local(expected):%Y-%m-%d %H:%M} ({schedule.expression}, {schedule.timezone})"


def _take(batch: StateBatch, monitor: Monitor, outcome: CheckOutcome) -> None:
    """Record the outcome for the current claim, and close the claim."""
    monitor.state.claimed_at = None
    record = CheckRecord(monitor.pk, monitor.state.claim, monitor.config_version, outcome)
    batch.keep(record)
    batch.apply(record)
