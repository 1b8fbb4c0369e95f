"""The times at which a monitor is due. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta


def next_slot(slot: datetime, *, interval_sec: int, now: datetime) -> datetime:
    """The first of `slot + k * interval` after `now`, k >= 1: lateness does not drift, missed slots stay missed."""
    interval = timedelta(seconds=interval_sec)
    return slot + interval * max(1, (now - slot) // interval + 1)
