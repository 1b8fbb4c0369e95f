"""Events of alerts as plain data: stored with the message, and rendered when it is sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import TextChoices


class Topic(TextChoices):
    """The topics that a channel can subscribe to."""

    DOWN = "down"
    RECOVERED = "recovered"
    SLOW = "slow"
    EXPIRY = "expiry"
    REMINDER = "reminder"
    DNS_CHANGE = "dns_change"
    TOO_OFTEN = "too_often"
    PARTIAL_OUTAGE = "partial_outage"
    LOCATION_OFFLINE = "location_offline"
    ON_CALL_GAP = "on_call_gap"
    ON_CALL = "on_call"


DEFAULT_TOPICS = (
    Topic.DOWN,
    Topic.RECOVERED,
    Topic.EXPIRY,
    Topic.REMINDER,
    Topic.LOCATION_OFFLINE,
    Topic.ON_CALL_GAP,
)


class EventType(StrEnum):
    """The type of an event."""

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
    PARTIAL_OUTAGE = "partial_outage"  # checks fail from some locations, and pass from others
    LOCATION_OFFLINE = "location_offline"
    LOCATION_ONLINE = "location_online"
    ON_CALL_GAP = "on_call_gap"  # soon, or now
    POLICY_UNREACHABLE = "policy_unreachable"
    ON_CALL = "on_call"  # a hand-over
    ON_CALL_ENDED = "on_call_ended"  # to no one
    TEST = "test"


class Words(NamedTuple):
    """The topic and the wording of an event type. Tests of a channel have no topic.

    `tag` begins subjects (mail programs ignore it when they thread by subject), and `sentence` is the text of a single
    message. `noun` and `verb` count the events of a group; they are singular. `sent` completes "Alert to 1
    channel: …" in timelines. `log` follows a monitor's name in the delivery log; `log_text` replaces the verb there.
    """

    topic: Topic | None
    tag: str
    sentence: str
    verb: str
    sent: str = ""
    log_text: str = ""
    noun: str = "monitor"

    @property
    def log(self) -> str:
        return self.log_text or self.verb


# In the order in which a group lists them: the most severe first.
WORDS: Mapping[EventType, Words] = {
    EventType.DOWN: Words(Topic.DOWN, "DOWN", "{name} is down.", "is down", "it is down"),
    EventType.STILL_DOWN: Words(Topic.DOWN, "STILL DOWN", "{name} is still down.", "is still down", "it is still down"),
    EventType.REMINDER: Words(
        Topic.REMINDER,
        "REMINDER",
        "{name} is still down and not acknowledged.",
        "is still down",
        "reminder that it is still down",
        log_text="is still down (reminder)",
    ),
    EventType.ACKNOWLEDGED: Words(
        Topic.DOWN,
        "ACKNOWLEDGED",
        "{by} has acknowledged that {name} is down.",
        "is acknowledged",
        "it was acknowledged",
    ),
    EventType.FLAPPING: Words(
        Topic.DOWN,
        "FLAPPING",
        "{name} is down again and flapping. The next alert is sent when it is stable.",
        "is flapping",
        "it is flapping; the next alert is sent when it is stable",
    ),
    EventType.PARTIAL_OUTAGE: Words(
        Topic.PARTIAL_OUTAGE,
        "PARTIAL OUTAGE",
        "{name} fails from some of its locations.",
        "fails from some locations",
    ),
    EventType.LOCATION_OFFLINE: Words(
        Topic.LOCATION_OFFLINE,
        "OFFLINE",
        "The location {name} is offline: nothing is checked from there.",
        "is offline",
        noun="location",
    ),
    EventType.POLICY_UNREACHABLE: Words(
        Topic.ON_CALL_GAP,
        "REACHES NO ONE",
        "The escalation policy {name} reaches no one.",
        "reaches no one",
        noun="policy",
    ),
    EventType.ON_CALL_GAP: Words(
        Topic.ON_CALL_GAP, "ON-CALL GAP", "The on-call schedule {name} has a gap.", "has a gap", noun="schedule"
    ),
    EventType.SLOW: Words(Topic.SLOW, "SLOW", "{name} is slow.", "is slow"),
    EventType.CERTIFICATE: Words(
        Topic.EXPIRY,
        "EXPIRES SOON",
        "The certificate of {name} {expires}.",
        "expires soon",
        log_text="has a certificate that expires soon",
        noun="certificate",
    ),
    EventType.DOMAIN: Words(
        Topic.EXPIRY,
        "EXPIRES SOON",
        "The domain registration of {name} {expires}.",
        "expires soon",
        log_text="has a domain that expires soon",
        noun="domain",
    ),
    EventType.DNS_CHANGE: Words(
        Topic.DNS_CHANGE,
        "DNS CHANGED",
        "The DNS records of {name} have changed.",
        "changed",
        log_text="has other DNS records",
        noun="DNS answer",
    ),
    EventType.TOO_OFTEN: Words(
        Topic.TOO_OFTEN, "TOO OFTEN", "{name} is pinged more often than expected.", "runs too often"
    ),
    EventType.PAUSED: Words(
        Topic.RECOVERED, "PAUSED", "{name} was paused while it was down.", "was paused", "the monitor was paused"
    ),
    EventType.DELETED: Words(
        Topic.RECOVERED, "DELETED", "{name} was deleted while it was down.", "was deleted", "the monitor was deleted"
    ),
    EventType.RECOVERED: Words(
        Topic.RECOVERED, "RECOVERED", "{name} is up again.", "recovered", "it has recovered", log_text="has recovered"
    ),
    EventType.SETTLED: Words(
        Topic.RECOVERED,
        "SETTLED",
        "{name} is stable again and up.",
        "settled",
        "it is stable again and up",
        "is stable again",
    ),
    EventType.LOCATION_ONLINE: Words(
        Topic.LOCATION_OFFLINE,
        "ONLINE",
        "The location {name} is online again.",
        "is online again",
        noun="location",
    ),
    EventType.ON_CALL: Words(
        Topic.ON_CALL, "ON CALL", "{by} is on call in {name} now.", "has a hand-over", noun="schedule"
    ),
    EventType.ON_CALL_ENDED: Words(
        Topic.ON_CALL, "ON CALL", "The shift of {by} in {name} has ended.", "has a hand-over", noun="schedule"
    ),
    EventType.TEST: Words(
        None,
        "TEST",
        "This is a test. Alerts to this channel work.",
        "arrived",
        log_text="message",
        noun="test message",
    ),
}
DOWN = frozenset({EventType.DOWN, EventType.STILL_DOWN, EventType.REMINDER})
DELAYED = frozenset({EventType.DOWN, EventType.STILL_DOWN, EventType.FLAPPING})
"""Events that a channel with a delay gets later."""
OVER = frozenset(
    {EventType.RECOVERED, EventType.PAUSED, EventType.DELETED, EventType.SETTLED, EventType.LOCATION_ONLINE}
)
APART = frozenset(
    {
        *(EventType.SLOW, EventType.CERTIFICATE, EventType.DOMAIN, EventType.DNS_CHANGE, EventType.TOO_OFTEN),
        EventType.PARTIAL_OUTAGE,
        *(EventType.POLICY_UNREACHABLE, EventType.ON_CALL_GAP, EventType.ON_CALL, EventType.ON_CALL_ENDED),
    }
)
"""Events that no event of another type supersedes: they are not about an outage."""
EXPIRY = {EventType.CERTIFICATE: "certificate", EventType.DOMAIN: "domain"}


@dataclass(frozen=True, slots=True)
class Payload:
    """The data of an event, which msgspec converts from and to JSON.

    Times are epoch milliseconds: `at` of the event, `started_at` of the outage.
    """

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
    location_id: str | None = None  # of an event about a location, which has no monitor
    location: str = ""
    schedule_id: str | None = None  # of an event about an on-call schedule, whose gap or shift begins at `started_at`
    policy_id: str | None = None
    title: str = ""  # the name of the schedule or escalation policy
    acknowledge_url: str | None = None  # of the person to whom it is sent; not stored

    @property
    def path(self) -> str:
        """Return the path of the page of the incident, or else of what it is about, or else an empty string."""
        if self.incident_id is not None:
            return f"/incidents/{self.incident_id}"
        if self.location_id is not None:
            return f"/locations/{self.location_id}"
        if self.schedule_id is not None:
            return f"/on-call/schedules/{self.schedule_id}"
        if self.policy_id is not None:
            return f"/on-call/policies/{self.policy_id}"
        return "" if self.monitor_id is None else f"/monitors/{self.monitor_id}"
