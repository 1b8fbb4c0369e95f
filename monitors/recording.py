"""The one write path of probes' results: many at once, one transaction, each moving its monitor at most once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from checks.results import stored_claims
from monitors.ledger import Ledger, Reading, Settings, State, open_ledger
from monitors.slots import next_slot


def record(readings: Sequence[Reading], *, now: datetime) -> None:
    """Store what probes found and move the states by it.

    Dropped: readings of deleted and paused monitors. Kept for history only (decision 34): those older
    than the last applied, and those of an older configuration. Recording a reading twice changes nothing.
    """
    with transaction.atomic():
        ledger = open_ledger({reading.monitor_id for reading in readings})
        late: list[Reading] = []
        for reading in sorted(readings, key=lambda reading: (reading.monitor_id, reading.claim)):
            state, settings = ledger.states.get(reading.monitor_id), ledger.settings.get(reading.monitor_id)
            if state is None or settings is None or not settings.enabled:
                continue
            if state.claim == reading.claim and state.claimed_at is not None and state.slot_at is not None:
                ledger.keep(reading)
                _close(ledger, state, settings, reading, now=now)
            else:
                late.append(reading)
        _take_late(ledger, late)
        ledger.write()


def _close(ledger: Ledger, state: State, settings: Settings, reading: Reading, *, now: datetime) -> None:
    """The result that an open claim waits for, which nothing can have stored before."""
    assert state.slot_at is not None
    next_due_at = next_slot(state.slot_at, interval_sec=settings.interval_sec, now=now)
    current = reading.config_version == settings.config_version and reading.claim > state.applied_claim
    if current and state.is_confirmed_by(reading.outcome):
        ledger.confirm(reading, next_due_at=next_due_at)
        return
    # The claim is done with, also where its configuration is not the present one any more.
    state.next_due_at, state.claimed_at = next_due_at, None
    ledger.move(state)
    if current:
        ledger.apply(reading)


def _take_late(ledger: Ledger, late: Sequence[Reading]) -> None:
    """Results that their claim no longer waits for: overtaken by a lease's end or an edit, or delivered twice."""
    known = stored_claims([(reading.monitor_id, reading.claim, reading.outcome) for reading in late])
    known |= {(monitor_id, claim) for monitor_id, claim, _ in ledger.made}
    for reading in late:
        if (reading.monitor_id, reading.claim) in known:
            continue
        known.add((reading.monitor_id, reading.claim))
        ledger.keep(reading)
        state, settings = ledger.states[reading.monitor_id], ledger.settings[reading.monitor_id]
        if reading.config_version == settings.config_version and reading.claim > state.applied_claim:
            ledger.apply(reading)
