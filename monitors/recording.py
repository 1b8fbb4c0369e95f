"""The one write path of results: many at once, one transaction, each moving its monitor at most once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from checks.models import CheckResult
from checks.spec import CheckOutcome
from monitors.models import Monitor, MonitorState, StatusChange, policy_of
from monitors.slots import next_slot
from monitors.state import Change, advance

_STATE_FIELDS = [
    "next_due_at",
    "claim",
    "claimed_at",
    "applied_claim",
    "armed_at",
    "status",
    "status_since",
    "fresh",
    "failures",
    "passes",
    "failing_since",
    "last_checked_at",
    "last_latency_ms",
    "last_connect_ms",
    "last_ttfb_ms",
    "last_ping_at",
    "cert_expires_at",
]
_MONITOR_FIELDS = [
    "type",
    "enabled",
    "config_version",
    "interval_sec",
    "grace_sec",
    "fail_threshold",
    "recover_threshold",
    "muted_until",
]


@dataclass(frozen=True, slots=True)
class Reading:
    """An outcome, the claim it was made under, and the configuration it was made with."""

    monitor_id: int
    claim: int
    config_version: int
    outcome: CheckOutcome


@dataclass(slots=True)
class Ledger:
    """Locked states with what is to be written of them. Only inside a transaction, from `open_ledger`."""

    states: dict[int, MonitorState]
    monitors: dict[int, Monitor]
    _results: list[CheckResult] = field(default_factory=list)
    _moved: dict[int, MonitorState] = field(default_factory=dict)
    _changes: list[StatusChange] = field(default_factory=list)

    def keep(self, reading: Reading) -> None:
        """Store the result, whatever comes of it."""
        self._results.append(_result(reading))

    def move(self, state: MonitorState) -> None:
        """Have this state written, as the caller has changed it."""
        self._moved[state.monitor_id] = state

    def apply(self, reading: Reading) -> None:
        """Move the state by the outcome, and note the change that this is, if it is one."""
        state, monitor = self.states[reading.monitor_id], self.monitors[reading.monitor_id]
        outcome = reading.outcome
        state.value, change = advance(state.value, outcome, policy_of(monitor))
        state.applied_claim = reading.claim
        state.last_checked_at = outcome.checked_at
        state.last_latency_ms = outcome.latency_ms
        state.last_connect_ms = outcome.connect_ms
        state.last_ttfb_ms = outcome.ttfb_ms
        state.cert_expires_at = outcome.cert_expires_at or state.cert_expires_at
        self.move(state)
        if change is not None:
            self._changes.append(_status_change(reading, change))

    def write(self) -> None:
        CheckResult.objects.bulk_create(self._results, ignore_conflicts=True)
        MonitorState.objects.bulk_create(
            self._moved.values(),
            update_conflicts=True,
            unique_fields=["monitor"],
            update_fields=_STATE_FIELDS,
        )
        StatusChange.objects.bulk_create(self._changes)


def open_ledger(monitor_ids: Collection[int]) -> Ledger:
    """Lock the states, in id order, so that two batches never wait for each other crosswise."""
    states = {
        state.monitor_id: state
        for state in MonitorState.objects.select_for_update().filter(pk__in=monitor_ids).order_by("pk")
    }
    # A query of its own, after the lock: joined to the locked rows it would show the configuration
    # as it was before we waited for a PATCH that held them.
    return Ledger(states, Monitor.objects.only(*_MONITOR_FIELDS).in_bulk(list(states)))


def record(readings: Sequence[Reading], *, now: datetime) -> None:
    """Store what probes found and move the states by it.

    Dropped: readings of deleted and paused monitors. Kept for history only (decision 34): those older
    than the last applied, and those of an older configuration. Recording a reading twice changes nothing.
    """
    with transaction.atomic():
        ledger = open_ledger({reading.monitor_id for reading in readings})
        for reading in sorted(readings, key=lambda reading: (reading.monitor_id, reading.claim)):
            state, monitor = ledger.states.get(reading.monitor_id), ledger.monitors.get(reading.monitor_id)
            if state is None or monitor is None or not monitor.enabled:
                continue
            ledger.keep(reading)
            if reading.config_version == monitor.config_version and reading.claim > state.applied_claim:
                ledger.apply(reading)
            if state.claim == reading.claim and state.claimed_at is not None and state.slot_at is not None:
                # The claim is done with, also where its configuration is not the present one any more.
                state.next_due_at = next_slot(state.slot_at, interval_sec=monitor.interval_sec, now=now)
                state.claimed_at = None
                ledger.move(state)
        ledger.write()


def _status_change(reading: Reading, change: Change) -> StatusChange:
    return StatusChange(
        monitor_id=reading.monitor_id,
        at=change.at,
        before=change.before,
        after=change.after,
        claim=reading.claim,
        failing_since=change.failing_since,
        reason_code=reading.outcome.reason_code,
        detail=reading.outcome.detail,
    )


def _result(reading: Reading) -> CheckResult:
    outcome = reading.outcome
    return CheckResult(
        monitor_id=reading.monitor_id,
        claim=reading.claim,
        checked_at=outcome.checked_at,
        verdict=outcome.verdict,
        latency_ms=outcome.latency_ms,
        connect_ms=outcome.connect_ms,
        ttfb_ms=outcome.ttfb_ms,
        http_status=outcome.http_status,
        reason_code=outcome.reason_code,
        detail=outcome.detail,
        evidence=None if outcome.evidence is None else outcome.evidence.stored(),
    )
