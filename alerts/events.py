"""What an alert reports, as plain data: stored with the message, and rendered when it is sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class EventType(StrEnum):
    """What happened."""

    DOWN = "down"
    STILL_DOWN = "still_down"  # at the end of a maintenance window, or of flapping
    REMINDER = "reminder"
    ACKNOWLEDGED = "acknowledged"
    RECOVERED = "recovered"
    PAUSED = "paused"  # the monitor was paused during an outage
    DELETED = "deleted"
    FLAPPING = "flapping"
    SETTLED = "settled"  # flapping has ended, and the monitor is up
    SLOW = "slow"
    CERTIFICATE = "certificate"
    DOMAIN = "domain"
    DNS_CHANGE = "dns_change"
    TOO_OFTEN = "too_often"  # a job runs more often than expected
    TEST = "test"


class Words(NamedTuple):
    """The wording of an event type.

    `tag` begins subjects (mail programs ignore it when they thread by subject), and `sentence` is the text of a single
    message. `noun` and `verb` count the events of a group, for one and for several. `sent` completes "Alert to 1
    channel: …" in timelines. `log` follows a monitor's name in the delivery log; `log_text` replaces the verb there.
    """

    tag: str
    sentence: str
    verb: tuple[str, str]
    sent: str = ""
    log_text: str = ""
    noun: tuple[str, str] = ("monitor", "monitors")

    @property
    def log(self) -> str:
        return self.log_text or self.verb[0]


# In the order in which a group lists them: the most severe first.
WORDS: Mapping[EventType, Words] = {
    EventType.DOWN: Words("DOWN", "{name} is down.", ("is down", "are down"), "it is down"),
    EventType.STILL_DOWN: Words(
        "STILL DOWN", "{name} is still down.", ("is still down", "are still down"), "it is still down"
    ),
    EventType.REMINDER: Words(
        "REMINDER",
        "{name} is still down and not acknowledged.",
        ("is still down", "are still down"),
        "reminder that it is still down",
        log_text="is still down (reminder)",
    ),
    EventType.ACKNOWLEDGED: Words(
        "ACKNOWLEDGED",
        "{by} has acknowledged that {name} is down.",
        ("is acknowledged", "are acknowledged"),
        "it was acknowledged",
    ),
    EventType.FLAPPING: Words(
        "FLAPPING",
        "{name} is down again and flapping. The next alert follows when it has settled.",
        ("is flapping", "are flapping"),
        "it is flapping; the next alert follows when it has settled",
    ),
    EventType.SLOW: Words("SLOW", "{name} is slow.", ("is slow", "are slow")),
    EventType.CERTIFICATE: Words(
        "EXPIRES SOON",
        "The certificate of {name} {expires}.",
        ("expires soon", "expire soon"),
        log_text="has a certificate that expires soon",
        noun=("certificate", "certificates"),
    ),
    EventType.DOMAIN: Words(
        "EXPIRES SOON",
        "The domain registration of {name} {expires}.",
        ("expires soon", "expire soon"),
        log_text="has a domain that expires soon",
        noun=("domain", "domains"),
    ),
    EventType.DNS_CHANGE: Words(
        "DNS CHANGED",
        "The DNS records of {name} have changed.",
        ("changed", "changed"),
        log_text="has other DNS records",
        noun=("DNS answer", "DNS answers"),
    ),
    EventType.TOO_OFTEN: Words(
        "TOO OFTEN", "{name} is pinged more often than expected.", ("runs too often", "run too often")
    ),
    EventType.PAUSED: Words(
        "PAUSED", "{name} was paused while it was down.", ("was paused", "were paused"), "the monitor was paused"
    ),
    EventType.DELETED: Words(
        "DELETED", "{name} was deleted while it was down.", ("was deleted", "were deleted"), "the monitor was deleted"
    ),
    EventType.RECOVERED: Words(
        "RECOVERED", "{name} is up again.", ("recovered", "recovered"), "it has recovered", log_text="has recovered"
    ),
    EventType.SETTLED: Words(
        "SETTLED", "{name} has settled and is up.", ("settled", "settled"), "it has settled and is up", "has settled"
    ),
    EventType.TEST: Words(
        "TEST",
        "This is a test. Alerts to this channel arrive.",
        ("arrived", "arrived"),
        log_text="message",
        noun=("test message", "test messages"),
    ),
}
SEVERITY = tuple(WORDS)
DOWN = frozenset({EventType.DOWN, EventType.STILL_DOWN, EventType.REMINDER})
OVER = frozenset({EventType.RECOVERED, EventType.PAUSED, EventType.DELETED, EventType.SETTLED})
APART = frozenset({EventType.SLOW, EventType.CERTIFICATE, EventType.DOMAIN, EventType.DNS_CHANGE, EventType.TOO_OFTEN})
"""Events that no event of another type supersedes: they are not about an outage."""
EXPIRY = {EventType.CERTIFICATE: "certificate", EventType.DOMAIN: "domain"}


@dataclass(frozen=True, slots=True)
class Payload:
    """The data of an event. Times are epoch milliseconds: `at` of the event, `started_at` of the outage."""

    event_type: EventType
    at: int
    monitor_id: str | None = None
    monitor: str = ""  # its name, or its address without one
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
    by: str | None = None  # the account that acknowledged it

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"event_type": self.event_type.value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Payload:
        return cls(**stored | {"event_type": EventType(stored["event_type"])})
