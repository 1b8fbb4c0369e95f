"""The one write path of results: many at once, one transaction, each moving its monitor at most once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from checks.models import CheckResult
from checks.spec import CheckOutcome
from monitors.models import Monitor, MonitorState, StatusChange, policy_of
from monitors.scheduling import next_slot
from monitors.state import Change, advance

_STATE_FIELDS = [
    "next_due_at",
    "claimed_at",
    "applied_claim",
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
    "cert_expires_at",
]
_MONITOR_FIELDS = [
    "enabled",
    "config_version",
    "interval_sec",
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


def record(readings: Sequence[Reading], *, now: datetime) -> None:
    """Store what was found and move the states by it.

    Dropped: readings of deleted and paused monitors. Kept for history only (decision 34): those older
    than the last applied, and those of an older configuration. Recording a reading twice changes nothing.
    """
    ordered = sorted(readings, key=lambda reading: (reading.monitor_id, reading.claim))
    with transaction.atomic():
        # Locked in id order, so that two batches never wait for each other crosswise.
        states = {
            state.monitor_id: state
            for state in MonitorState.objects.select_for_update()
            .filter(pk__in={reading.monitor_id for reading in ordered})
            .order_by("pk")
        }
        # A query of its own, after the lock: joined to the locked rows it would show the configuration
        # as it was before we waited for a PATCH that held them.
        monitors = Monitor.objects.only(*_MONITOR_FIELDS).in_bulk(list(states))
        kept: list[Reading] = []
        moved: dict[int, MonitorState] = {}
        changes: list[StatusChange] = []
        for reading in ordered:
            state, monitor = states.get(reading.monitor_id), monitors.get(reading.monitor_id)
            if state is None or monitor is None or not monitor.enabled:
                continue
            kept.append(reading)
            if reading.config_version != monitor.config_version or reading.claim <= state.applied_claim:
                continue
            change = _apply(reading, state, monitor, now=now)
            moved[state.monitor_id] = state
            if change is not None:
                changes.append(_status_change(reading, change))
        CheckResult.objects.bulk_create(map(_result, kept), ignore_conflicts=True)
        MonitorState.objects.bulk_create(
            moved.values(), update_conflicts=True, unique_fields=["monitor"], update_fields=_STATE_FIELDS
        )
        StatusChange.objects.bulk_create(changes)


def _apply(reading: Reading, state: MonitorState, monitor: Monitor, *, now: datetime) -> Change | None:
    outcome = reading.outcome
    state.value, change = advance(state.value, outcome, policy_of(monitor))
    state.applied_claim = reading.claim
    state.last_checked_at = outcome.checked_at
    state.last_latency_ms = outcome.latency_ms
    state.last_connect_ms = outcome.connect_ms
    state.last_ttfb_ms = outcome.ttfb_ms
    state.cert_expires_at = outcome.cert_expires_at or state.cert_expires_at
    if state.claim == reading.claim and state.claimed_at is not None and state.slot_at is not None:
        state.next_due_at = next_slot(state.slot_at, interval_sec=monitor.interval_sec, now=now)
        state.claimed_at = None
    return change


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
    )
