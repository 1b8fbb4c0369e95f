"""What was sent through a channel, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from alerts.facts import Facts, News
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
    News.DOWN: "is down",
    News.STILL_DOWN: "is still down",
    News.REMINDER: "is still down (reminder)",
    News.ACKNOWLEDGED: "is acknowledged",
    News.RECOVERED: "has recovered",
    News.PAUSED: "was paused",
    News.DELETED: "was deleted",
    News.FLAPPING: "is flapping",
    News.SETTLED: "has settled",
    News.SLOW: "is slow",
    News.CERTIFICATE: "has a certificate that ends soon",
    News.DOMAIN: "has a domain that ends soon",
    News.TEST: "message",
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
            facts = Facts.from_json(item.facts)
            path = f"/incidents/{facts.incident_id}" if facts.incident_id else ""
            if not path and facts.monitor_id:
                path = f"/monitors/{facts.monitor_id}"
            yield ShownItem(facts.monitor or facts.monitor_id or "Test", _SAID[facts.news], path)

    @property
    def more(self) -> int:
        return max(0, len(self.delivery.items.all()) - MOST_SHOWN)
