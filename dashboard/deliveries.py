"""What was sent through a channel, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from alerts.events import EventType, Payload
from alerts.models import Delivery

MOST_SHOWN = 3

STATE_NAMES = {
    Delivery.State.GATHERING: "Gathering",
    Delivery.State.WAITING: "Waiting",
    Delivery.State.SENT: "Sent",
    Delivery.State.DEAD: "Given up",
    Delivery.State.FAILED: "Failed",
}
_SAID = {
    EventType.DOWN: "is down",
    EventType.STILL_DOWN: "is still down",
    EventType.REMINDER: "is still down (reminder)",
    EventType.ACKNOWLEDGED: "is acknowledged",
    EventType.RECOVERED: "has recovered",
    EventType.PAUSED: "was paused",
    EventType.DELETED: "was deleted",
    EventType.FLAPPING: "is flapping",
    EventType.SETTLED: "has settled",
    EventType.SLOW: "is slow",
    EventType.CERTIFICATE: "has a certificate that ends soon",
    EventType.DOMAIN: "has a domain that ends soon",
    EventType.TEST: "message",
}


@dataclass(frozen=True, slots=True)
class ShownItem:
    """`about` is what the news is of, `path` where its page is, if it has one."""

    about: str
    said: str
    path: str


@dataclass(frozen=True, slots=True)
class ShownDelivery:
    delivery: Delivery
    now: datetime

    @property
    def state_name(self) -> str:
        return STATE_NAMES[Delivery.State(self.delivery.state)]

    @property
    def is_dead(self) -> bool:
        return self.delivery.state == Delivery.State.DEAD

    @property
    def next_try_at(self) -> datetime | None:
        """Of one that waits; None where it is its turn."""
        is_open = self.delivery.state in (Delivery.State.WAITING, Delivery.State.GATHERING)
        return self.delivery.next_try_at if is_open and self.delivery.next_try_at > self.now else None

    def items(self) -> Iterator[ShownItem]:
        for item in self.delivery.items.all()[:MOST_SHOWN]:
            payload = Payload.from_json(item.payload)
            path = f"/incidents/{payload.incident_id}" if payload.incident_id else ""
            if not path and payload.monitor_id:
                path = f"/monitors/{payload.monitor_id}"
            yield ShownItem(payload.monitor or payload.monitor_id or "Test", _SAID[payload.event_type], path)

    @property
    def more(self) -> int:
        return max(0, len(self.delivery.items.all()) - MOST_SHOWN)
