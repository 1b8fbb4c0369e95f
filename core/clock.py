"""The one place that reads the clock. Read it once per action and pass `now` on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MS = 253_402_300_799_999  # the last of year 9999, beyond which neither Python nor a person counts


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Epoch milliseconds, as the API shows every time. The rest of a millisecond is cut off."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """The moment of epoch milliseconds, 0 to MAX_MS."""
    return EPOCH + timedelta(milliseconds=ms)
