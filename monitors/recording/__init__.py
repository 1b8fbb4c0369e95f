"""The only write path of probe results: many per transaction, each applied to its monitor at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from monitors.recording import fast_path, verifying
from monitors.recording.batch import CheckRecord, lock_batch


def record(records: Sequence[CheckRecord], *, now: datetime, skip_locked: bool = False) -> list[CheckRecord]:
    """Store probe results and update the states.

    Records of deleted and paused monitors are dropped. Records older than the last applied one, of an older
    configuration, or of an agent that no longer has the lease, are stored as history only. Recording a record twice
    changes nothing. A failure about which other locations are asked is stored once they have answered.

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
    batch.settle(verifying.begin(batch, records, now=now), now=now)
    batch.write()
