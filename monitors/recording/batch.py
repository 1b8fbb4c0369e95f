"""Locked states and their pending changes, written with a constant number of statements."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection

from checks.results.store import NewResult, store_results
from checks.spec import CheckOutcome, Verdict
from core.bulk import update_rows
from monitors import types
from monitors.heartbeats.deadlines import HeartbeatDeadline
from monitors.models import StatusChange
from monitors.state import Change, Policy, Status, advance

_TABLE = "monitors_monitorstate"
_LOCK = """
    SELECT monitor_id, claim, claimed_at, slot_at, next_due_at, applied_claim, status, status_since, fresh,
           failures, passes, failing_since, last_ping_at, armed_at
      FROM monitors_monitorstate
     WHERE monitor_id = ANY(%s)
     ORDER BY monitor_id
       FOR UPDATE
"""
_SETTINGS = """
    SELECT id, type, enabled, config_version, interval_sec, (config->>'grace_sec')::int, fail_threshold,
           recover_threshold, muted_until
      FROM monitors_monitor
     WHERE id = ANY(%s)
"""
_MOVED = {
    "monitor_id": "bigint",
    "claim": "bigint",
    "claimed_at": "timestamptz",
    "next_due_at": "timestamptz",
    "applied_claim": "bigint",
    "status": "text",
    "status_since": "timestamptz",
    "fresh": "bool",
    "failures": "int",
    "passes": "int",
    "failing_since": "timestamptz",
    "last_ping_at": "timestamptz",
    "armed_at": "timestamptz",
}
_FOUND = {
    "last_checked_at": "timestamptz",
    "last_latency_ms": "int",
    "last_connect_ms": "int",
    "last_ttfb_ms": "int",
    "cert_expires_at": "timestamptz",
}
_KEPT_CERTIFICATE = {"cert_expires_at": "coalesce(new.cert_expires_at, old.cert_expires_at)"}


@dataclass(slots=True)
class Settings:
    """The columns of a monitor's configuration that its state depends on, read under the lock."""

    monitor_id: int
    type: str
    enabled: bool
    config_version: int
    interval_sec: int
    grace_sec: int | None  # only of monitors that wait for signals
    fail_threshold: int
    recover_threshold: int
    muted_until: datetime | None

    @property
    def policy(self) -> Policy:
        # A missed deadline is down at once, because its grace period has already passed.
        threshold = 1 if types.get(self.type).waits else self.fail_threshold
        return Policy(threshold, self.recover_threshold, self.muted_until)


@dataclass(slots=True)
class State:
    """The columns of a MonitorState that decisions depend on; changed in place."""

    monitor_id: int
    claim: int
    claimed_at: datetime | None
    slot_at: datetime | None
    next_due_at: datetime | None
    applied_claim: int
    status: str | None
    status_since: datetime | None
    fresh: bool
    failures: int
    passes: int
    failing_since: datetime | None
    last_ping_at: datetime | None
    armed_at: datetime | None

    @property
    def value(self) -> Status:
        return Status(
            status=None if self.status is None else Verdict(self.status),
            since=self.status_since,
            fresh=self.fresh,
            failures=self.failures,
            passes=self.passes,
            failing_since=self.failing_since,
        )

    @value.setter
    def value(self, value: Status) -> None:
        self.status = None if value.status is None else value.status.value
        self.status_since = value.since
        self.fresh = value.fresh
        self.failures = value.failures
        self.passes = value.passes
        self.failing_since = value.failing_since

    def watch(self, settings: Settings) -> HeartbeatDeadline:
        return HeartbeatDeadline(
            self.last_ping_at,
            settings.interval_sec,
            settings.grace_sec or 0,
            self.armed_at,
            settings.muted_until,
        )


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """An outcome, the claim it was made under, and the configuration it was made with."""

    monitor_id: int
    claim: int
    config_version: int
    outcome: CheckOutcome


@dataclass(slots=True)
class StateBatch:
    """Locked states and their pending changes. Create it with `lock_batch`, inside a transaction."""

    states: dict[int, State]
    settings: dict[int, Settings]
    made: list[NewResult] = field(default_factory=list)
    _found: dict[int, CheckOutcome] = field(default_factory=dict)
    _moved: dict[int, State] = field(default_factory=dict)
    _changes: list[StatusChange] = field(default_factory=list)

    def keep(self, record: CheckRecord) -> None:
        """Store the result, whether or not it is applied to the state."""
        self.made.append((record.monitor_id, record.claim, record.outcome))

    def move(self, state: State) -> None:
        """Mark a state that the caller has changed, to be written."""
        self._moved[state.monitor_id] = state

    def apply(self, record: CheckRecord) -> None:
        """Apply the outcome to the state, and add the status change, if any."""
        state, settings = self.states[record.monitor_id], self.settings[record.monitor_id]
        state.value, change = advance(state.value, record.outcome, settings.policy)
        state.applied_claim = record.claim
        self._found[record.monitor_id] = record.outcome
        self.move(state)
        if change is not None:
            self._changes.append(_status_change(record, change))

    def write(self) -> None:
        store_results(self.made)
        # Write each row once: with the columns of the result if an outcome was applied.
        moved, found = [], []
        for monitor_id, state in self._moved.items():
            row = [getattr(state, name) for name in _MOVED]
            outcome = self._found.get(monitor_id)
            if outcome is None:
                moved.append(row)
            else:
                found.append(
                    [
                        *row,
                        outcome.checked_at,
                        outcome.latency_ms,
                        outcome.connect_ms,
                        outcome.ttfb_ms,
                        outcome.cert_expires_at,
                    ]
                )
        update_rows(_TABLE, _MOVED, moved, key="monitor_id")
        update_rows(_TABLE, _MOVED | _FOUND, found, key="monitor_id", expressions=_KEPT_CERTIFICATE)
        StatusChange.objects.bulk_create(self._changes)


def lock_batch(monitor_ids: Collection[int]) -> StateBatch:
    """Lock the states in id order, to prevent deadlocks between batches."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [list(monitor_ids)])
        states = {row[0]: State(*row) for row in cursor.fetchall()}
        # A separate query after the lock: a join in the locking query would return the configuration from before
        # a PATCH that had the lock.
        cursor.execute(_SETTINGS, [list(states)])
        settings = {row[0]: Settings(*row) for row in cursor.fetchall()}
    return StateBatch(states, settings)


def _status_change(record: CheckRecord, change: Change) -> StatusChange:
    return StatusChange(
        monitor_id=record.monitor_id,
        at=change.at,
        before=change.before,
        after=change.after,
        claim=record.claim,
        failing_since=change.failing_since,
        reason_code=record.outcome.reason_code,
        detail=record.outcome.detail,
    )
