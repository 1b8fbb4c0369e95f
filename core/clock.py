"""The one place that reads the clock. Read it once per action and pass `now` on."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Epoch milliseconds, as the API shows every time."""
    return int(moment.timestamp() * 1000)
