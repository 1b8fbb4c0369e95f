"""The only write path of probe results: many per transaction, each applied to its monitor at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from checks.results.store import stored_claims
from monitors.models import MonitorState
from monitors.recording import fast_path
from monitors.recording.batch import CheckRecord, lock_batch


def record(records: Sequence[CheckRecord], *, now: datetime, skip_locked: bool = False) -> list[CheckRecord]:
    """Store probe results and update the states.

    Records of deleted and paused monitors are dropped. Records older than the last applied one, or of an older
    configuration, are stored as history only. Recording a record twice changes nothing.

    With `skip_locked`, return the records of monitors that other transactions have locked, to be recorded later: a
    long edit of one account does not delay the results of others.
    """
    times = Counter(each.monitor_id for each in records)
    with transaction.atomic():
        locked: set[int] = set()
        if skip_locked:
            locked = fast_path.try_lock_states(list(times))
        else:
            fast_path.lock_states(list(times))
        left = [each for each in records if each.monitor_id in locked]
        records = [each for each in records if each.monitor_id not in locked]
        rest = [each for each in records if times[each.monitor_id] > 1]
        rest += fast_path.record_unchanged([each for each in records if times[each.monitor_id] == 1], now=now)
        if rest:
            _move(rest, now=now)
    return left


def _move(records: Sequence[CheckRecord], *, now: datetime) -> None:
    batch = lock_batch({each.monitor_id for each in records})
    records = [each for each in records if each.monitor_id in batch.monitors]
    # Results may already be stored after an expired lease, an edit or a repeated delivery.
    known = stored_claims(
        [(*each.key, each.outcome) for each in records if not _is_open(batch.monitors[each.monitor_id].state, each)]
    )
    for each in sorted(records, key=lambda each: each.key):
        monitor = batch.monitors[each.monitor_id]
        state = monitor.state
        if not monitor.enabled or each.key in known:
            continue
        known.add(each.key)
        batch.keep(each)
        confirm_at = None
        if each.config_version == monitor.config_version and each.claim > state.applied_claim:
            confirm_at = batch.apply(each)
        if _is_open(state, each) and state.slot_at is not None:
            # Close the claim even if its configuration is outdated.
            state.next_due_at = min(filter(None, (monitor.next_slot(state.slot_at, now=now), confirm_at)))
            state.claimed_at = None
            batch.move(state)
    batch.write()


def _is_open(state: MonitorState, record: CheckRecord) -> bool:
    """Return whether the record's claim is the monitor's current one, without a result so far."""
    return state.claim == record.claim and state.claimed_at is not None
