"""What a message tells, as plain data: it is stored with the message, and rendered when that is sent. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """What happened."""

    DOWN = "down"
    STILL_DOWN = "still_down"  # when a silence ended: a maintenance window, or flapping
    REMINDER = "reminder"
    ACKNOWLEDGED = "acknowledged"
    RECOVERED = "recovered"
    PAUSED = "paused"  # an outage is over for Pulsekeeper, since the monitor is paused
    DELETED = "deleted"
    FLAPPING = "flapping"
    SETTLED = "settled"  # flapping is over, and it is up
    SLOW = "slow"
    CERTIFICATE = "certificate"
    DOMAIN = "domain"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Payload:
    """Times are epoch milliseconds. `at`: when it happened, `started_at`: since when the outage is, or was."""

    event_type: EventType
    at: int
    monitor_id: str | None = None
    monitor: str = ""  # its name, or its address where it has none
    type: str = "http"
    url: str = ""
    project: str | None = None
    incident_id: str | None = None
    started_at: int | None = None
    resolved_at: int | None = None
    reason_code: str | None = None
    detail: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    expires_at: int | None = None
    by: str | None = None  # who acknowledged it

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"event_type": self.event_type.value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Payload:
        return cls(**stored | {"event_type": EventType(stored["event_type"])})
