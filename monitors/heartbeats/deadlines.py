"""When a heartbeat is missed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from checks.spec import CheckOutcome, ReasonCode, Verdict


@dataclass(frozen=True, slots=True)
class HeartbeatDeadline:
    """What the deadline of a heartbeat hangs on. `armed_at`: never down before then, whatever the last ping."""

    last_ping_at: datetime | None
    interval_sec: int
    grace_sec: int
    armed_at: datetime | None = None
    muted_until: datetime | None = None

    @property
    def deadline(self) -> datetime | None:
        """A ping is due until then; None before the first."""
        if self.last_ping_at is None:
            return None
        return self.last_ping_at + timedelta(seconds=self.interval_sec) + timedelta(seconds=self.grace_sec)

    @property
    def due_at(self) -> datetime | None:
        """Up until then, and down after it: the deadline, or what holds a late one back for longer."""
        deadline = self.deadline
        return None if deadline is None else max(filter(None, (deadline, self.armed_at, self.muted_until)))


def arrived(now: datetime) -> CheckOutcome:
    return CheckOutcome(verdict=Verdict.UP, checked_at=now)


def missed(watch: HeartbeatDeadline, due_at: datetime) -> CheckOutcome:
    """The outcome of a watch whose deadline has passed: down since the deadline itself."""
    return CheckOutcome(
        verdict=Verdict.DOWN,
        checked_at=due_at,
        reason_code=ReasonCode.HEARTBEAT_MISSED,
        detail=f"No ping came within {watch.interval_sec} s and {watch.grace_sec} s of grace.",
    )
