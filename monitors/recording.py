"""The one write path of probes' results: many at once, one transaction, each moving its monitor at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from checks.results import stored_claims
from monitors import steady
from monitors.ledger import Reading, open_ledger
from monitors.slots import next_slot


def record(readings: Sequence[Reading], *, now: datetime) -> None:
    """Store what probes found and move the states by it.

    Dropped: readings of deleted and paused monitors. Kept for history only (decision 34): those older
    than the last applied, and those of an older configuration. Recording a reading twice changes nothing.
    """
    times = Counter(reading.monitor_id for reading in readings)
    with transaction.atomic():
        steady.hold(list(times))
        rest = [reading for reading in readings if times[reading.monitor_id] > 1]
        rest += steady.confirm([reading for reading in readings if times[reading.monitor_id] == 1], now=now)
        if rest:
            _move(rest, now=now)


def _move(readings: Sequence[Reading], *, now: datetime) -> None:
    ledger = open_ledger({reading.monitor_id for reading in readings})
    # Stored already: what a lease's end or an edit has overtaken, or what was delivered twice.
    known = stored_claims(
        [
            (reading.monitor_id, reading.claim, reading.outcome)
            for reading in readings
            if (state := ledger.states.get(reading.monitor_id)) is not None
            and (state.claim != reading.claim or state.claimed_at is None)
        ]
    )
    for reading in sorted(readings, key=lambda reading: (reading.monitor_id, reading.claim)):
        state, settings = ledger.states.get(reading.monitor_id), ledger.settings.get(reading.monitor_id)
        if state is None or settings is None or not settings.enabled:
            continue
        if (reading.monitor_id, reading.claim) in known:
            continue
        known.add((reading.monitor_id, reading.claim))
        ledger.keep(reading)
        if reading.config_version == settings.config_version and reading.claim > state.applied_claim:
            ledger.apply(reading)
        if state.claim == reading.claim and state.claimed_at is not None and state.slot_at is not None:
            # The claim is done with, also where its configuration is not the present one any more.
            state.next_due_at = next_slot(state.slot_at, interval_sec=settings.interval_sec, now=now)
            state.claimed_at = None
            ledger.move(state)
    ledger.write()
