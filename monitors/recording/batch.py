"""Locked monitors and their pending changes, written with a constant number of statements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from checks.results.store import NewResult, store_results, stored_claims
from checks.spec import CheckOutcome, Verdict
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.partial import Turn, note_turns
from monitors.recording.answers import note_answers
from monitors.slots import refill_slots
from monitors.stale import stale_since, unobserved
from monitors.state import Policy, Status, advance, confirm_at, next_check

_WRITTEN = (
    *("claim", "claimed_at", "slot_at", "next_due_at", "applied_claim", "armed_at", "fault", "fault_since"),
    *("status", "status_since", "fresh", "failures", "passes", "failing_since"),
    *("last_ping_at", "last_signal_at", "runs", "run_started_at", "last_duration_ms", "bodies_since", "body_bytes"),
    *("last_checked_at", "last_latency_ms", "last_connect_ms", "last_ttfb_ms", "cert_expires_at"),
)


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """An outcome, the claim it was made under, and the configuration it was made with.

    `agent_id` and `location_id` are None for workers. `confirmed`: whether other locations saw the failure too.
    """

    monitor_id: int
    claim: int
    config_version: int
    outcome: CheckOutcome
    agent_id: int | None = None
    location_id: int | None = None
    confirmed: bool | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.monitor_id, self.claim


@dataclass(slots=True)
class StateBatch:
    """Monitors with locked states, and their pending changes. Create it with `lock_batch`, inside a transaction."""

    monitors: dict[int, Monitor]
    _results: list[NewResult] = field(default_factory=list)
    _moved: dict[int, MonitorState] = field(default_factory=dict)
    _changes: list[StatusChange] = field(default_factory=list)
    _applied: list[CheckRecord] = field(default_factory=list)
    _turns: list[Turn] = field(default_factory=list)

    def keep(self, record: CheckRecord) -> None:
        """Store the result, whether or not it is applied to the state."""
        self._results.append(NewResult(*record.key, record.outcome, record.location_id, record.confirmed))

    def settle(self, records: Sequence[CheckRecord], *, now: datetime) -> None:
        """Store the results, apply those that count, and close their claims."""
        records = [each for each in records if each.monitor_id in self.monitors]
        # Results may already be stored after an expired lease, an edit or a repeated delivery.
        unsure = [each for each in records if not is_open(self.monitors[each.monitor_id].state, each)]
        known = stored_claims([NewResult(*each.key, each.outcome) for each in unsure])
        for each in sorted(records, key=lambda each: each.key):
            monitor = self.monitors[each.monitor_id]
            state = monitor.state
            if not monitor.enabled or each.key in known:
                continue
            known.add(each.key)
            self.keep(each)
            confirm_at = None
            if _counts(monitor, each) and each.claim > state.applied_claim:
                confirm_at = self.apply(each)
            if is_open(state, each) and state.slot_at is not None:
                # Close the claim even if its configuration is outdated.
                state.next_due_at = _next_check(monitor, monitor.next_slot(state.slot_at, now=now), confirm_at)
                state.claimed_at = None
                self.move(state)

    def move(self, state: MonitorState) -> None:
        """Mark a state that the caller has changed, to be written."""
        self._moved[state.monitor_id] = state

    def apply(self, record: CheckRecord) -> datetime | None:
        """Apply the outcome to the state, and add the status change, if any. A refuted failure ends the claim only.

        Return when the next check is due at the latest, or None: in its turn.
        """
        monitor, outcome = self.monitors[record.monitor_id], record.outcome
        state = monitor.state
        self.move(state)
        state.applied_claim = record.claim
        if (since := stale_since(monitor, now=outcome.checked_at)) is not None:
            self._changes += unobserved(monitor, since=since, until=outcome.checked_at)
        state.fault = state.fault_since = None
        state.last_checked_at = outcome.checked_at
        if record.confirmed is False:
            self._note_turn(record)
            return None
        self._applied.append(record)
        # A missed deadline is down at once, because its grace period has already passed.
        threshold = 1 if monitor.kind.waits else monitor.fail_threshold
        before = Status(
            None if state.status is None else Verdict(state.status),
            state.status_since,
            state.fresh,
            state.failures,
            state.passes,
            state.failing_since,
        )
        policy = Policy(threshold, monitor.recover_threshold, monitor.muted_until, monitor.confirmation)
        after, change = advance(before, outcome, policy)
        state.status, state.status_since, state.failing_since = after.status, after.since, after.failing_since
        state.fresh, state.failures, state.passes = after.fresh, after.failures, after.passes
        self._note_turn(record, was_down=before.status is Verdict.DOWN)
        if change is not None:
            self._changes.append(
                StatusChange(
                    monitor_id=record.monitor_id,
                    at=change.at,
                    before=change.before,
                    after=change.after,
                    claim=record.claim,
                    failing_since=change.failing_since,
                    reason_code=outcome.reason_code,
                    detail=outcome.detail,
                    processed_at=None if change.confirmed else change.at,
                )
            )
        state.last_latency_ms = outcome.latency_ms
        state.last_connect_ms, state.last_ttfb_ms = outcome.connect_ms, outcome.ttfb_ms
        state.cert_expires_at = outcome.cert_expires_at or state.cert_expires_at
        counted = after.failures > before.failures
        return confirm_at(after, outcome.checked_at, policy) if counted else None

    def _note_turn(self, record: CheckRecord, *, was_down: bool = False) -> None:
        """Note what a location of several saw. A recovery sets the counts to 0."""
        monitor, outcome = self.monitors[record.monitor_id], record.outcome
        if len(monitor.locations) > 1 and monitor.kind.polls:
            is_muted = monitor.muted_until is not None and monitor.muted_until > outcome.checked_at
            is_counted = not (was_down or monitor.state.status == Verdict.DOWN or is_muted)
            place = (record.monitor_id, record.location_id, record.config_version)
            self._turns.append(Turn(*place, outcome if is_counted else None))

    def write(self) -> None:
        store_results(self._results)
        write_columns(list(self._moved.values()), _WRITTEN)
        refill_slots([self.monitors[key] for key in self._moved])
        StatusChange.objects.bulk_create(self._changes)
        note_answers(self._applied)
        note_turns(self._turns)


def _counts(monitor: Monitor, record: CheckRecord) -> bool:
    """Return whether a result of this claim and configuration may change the status.

    That of an agent only while it has the lease. A failure about which other locations were not asked, because a later
    claim came before it, is history too.
    """
    if record.config_version != monitor.config_version:
        return False
    if is_open(monitor.state, record):
        return True
    is_doubtful = not record.outcome.passed and len(monitor.locations) > 1 and monitor.kind.polls
    return record.agent_id is None and not is_doubtful


def _next_check(monitor: Monitor, slot: datetime, early: datetime | None) -> datetime:
    state = monitor.state
    if early is None or state.failing_since is None or monitor.confirmation is None:
        return slot
    is_last = state.failures + 1 >= monitor.fail_threshold
    confirms_at = state.failing_since + monitor.confirmation if is_last else None
    return next_check(slot, early, interval=monitor.shortest_interval, confirms_at=confirms_at)


def is_open(state: MonitorState, record: CheckRecord) -> bool:
    """Return whether the record's claim is the monitor's current one, of the same agent, without a result so far."""
    is_current = state.claim == record.claim and state.claimed_at is not None
    return is_current and record.agent_id in (None, state.agent_id)


def lock_batch(monitor_ids: Collection[int], *, skip_locked: bool = False) -> StateBatch:
    columns = ("type", "enabled", "config_version", "interval_sec", "timeout_ms", "config", "locations", "quorum")
    monitors = Monitor.objects.only(*columns, "fail_threshold", "recover_threshold", "confirmation_sec", "muted_until")
    return StateBatch(lock_monitors(monitor_ids, monitors, skip_locked=skip_locked))
