"""Deadlines of heartbeats. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from checks.spec import CheckOutcome, ReasonCode, Verdict


@dataclass(frozen=True, slots=True)
class HeartbeatDeadline:
    """The inputs of a heartbeat's deadline. `armed_at`: it is never down before then, however old the last ping is."""

    last_ping_at: datetime | None
    interval_sec: int
    grace_sec: int
    armed_at: datetime | None = None
    muted_until: datetime | None = None

    @property
    def deadline(self) -> datetime | None:
        """Return the time until which a ping is due, or None before the first ping."""
        if self.last_ping_at is None:
            return None
        return self.last_ping_at + timedelta(seconds=self.interval_sec) + timedelta(seconds=self.grace_sec)

    @property
    def due_at(self) -> datetime | None:
        """Return the time after which it is down: the deadline, or `armed_at` or the end of a mute if later."""
        deadline = self.deadline
        return None if deadline is None else max(filter(None, (deadline, self.armed_at, self.muted_until)))


def arrived(now: datetime) -> CheckOutcome:
    return CheckOutcome(verdict=Verdict.UP, checked_at=now)


def missed(watch: HeartbeatDeadline, due_at: datetime) -> CheckOutcome:
    """Return the outcome of a missed deadline: down since the deadline itself."""
    return CheckOutcome(
        verdict=Verdict.DOWN,
        checked_at=due_at,
        reason_code=ReasonCode.HEARTBEAT_MISSED,
        detail=f"No ping came within {watch.interval_sec} s and {watch.grace_sec} s of grace.",
    )
