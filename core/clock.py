"""The only place that reads the clock. Read it once per action and pass `now` on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MS = 253_402_300_799_999  # the end of the year 9999, Python's last


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Return epoch milliseconds, rounded down, as in all times of the API."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """Return the time of epoch milliseconds, 0 to MAX_MS."""
    return EPOCH + timedelta(milliseconds=ms)
