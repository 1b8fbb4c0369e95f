"""Deliveries in the log of a channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from alerts.events import WORDS, Payload
from alerts.models import Delivery

MOST_SHOWN = 3

STATE_NAMES = {
    Delivery.State.GATHERING: "Gathering",
    Delivery.State.WAITING: "Waiting",
    Delivery.State.SENT: "Sent",
    Delivery.State.DEAD: "Given up",
    Delivery.State.FAILED: "Failed",
}


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An event in the log: `about` is the monitor's name, and `path` its page, if any."""

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
        """Return the time of the next attempt, or None if it is due."""
        is_open = self.delivery.state in (Delivery.State.WAITING, Delivery.State.GATHERING)
        return self.delivery.next_try_at if is_open and self.delivery.next_try_at > self.now else None

    def items(self) -> Iterator[ShownItem]:
        for item in self.delivery.items.all()[:MOST_SHOWN]:
            payload = Payload.from_json(item.payload)
            path = f"/incidents/{payload.incident_id}" if payload.incident_id else ""
            if not path and payload.monitor_id:
                path = f"/monitors/{payload.monitor_id}"
            yield ShownItem(payload.monitor or payload.monitor_id or "Test", WORDS[payload.event_type].log, path)

    @property
    def more(self) -> int:
        return max(0, len(self.delivery.items.all()) - MOST_SHOWN)
