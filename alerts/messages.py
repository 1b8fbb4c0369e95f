"""Render the events of a delivery as a message. Pure, except for the templates of its HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from textwrap import indent
from typing import Any

from django.template.loader import render_to_string
from django.utils.text import capfirst

from alerts.events import APART, DOWN, EXPIRY, OVER, WORDS, EventType, Payload
from alerts.wording import BODY_CHARS, DETAIL_CHARS, duration, several_lines, uncalling, unlinked, written
from checks.evidence import shown_address
from checks.spec import ReasonCode
from core.clock import from_ms
from core.text import one_line

MOST_NAMED = 50
"""Lines of a group's text. Further events are counted."""
MOST_ITEMS = 500
"""Items of a group's webhook body."""
_LATE = timedelta(minutes=15)
_URL_CHARS = 500
_PLURALS = {"has": "have", "is": "are", "reaches": "reach", "was": "were", "expires": "expire", "runs": "run"}


class Level(StrEnum):
    """The severity: chat services derive a colour, on-call services open or close their alert."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Message:
    """One message in all formats that channels need.

    `webhook_body` is the JSON object of webhooks, `short` one or two lines for chat services. Messages of one incident
    have the same `thread`. `acknowledge` has labels and URLs with which the receiver, a person, acknowledges the
    incidents that `short` names.
    """

    subject: str
    text: str
    html: str
    webhook_body: dict[str, Any]
    short: str
    thread: str
    level: Level
    acknowledge: Sequence[tuple[str, str]] = ()


REASONS: dict[str, str] = {
    ReasonCode.TIMEOUT: "No response in time",
    ReasonCode.DNS_FAILURE: "DNS lookup failed",
    ReasonCode.CONNECTION_FAILURE: "Connection failed",
    ReasonCode.TLS_FAILURE: "TLS or certificate problem",
    ReasonCode.HTTP_FAILURE: "Unexpected status code",
    ReasonCode.CONTENT_FAILURE: "Unexpected content",
    ReasonCode.PARTIAL_RESPONSE: "Incomplete response",
    ReasonCode.REDIRECT_FAILURE: "Redirect failed",
    ReasonCode.BLOCKED_TARGET: "Blocked address",
    ReasonCode.HEARTBEAT_MISSED: "No ping in time",
    ReasonCode.HEARTBEAT_FAILED: "The job failed",
    ReasonCode.WORKER_LOST: "Check did not finish",
}


def render(items: Sequence[Payload], *, key: str, base_url: str, now: datetime) -> Message:
    """Render at least one event, in chronological order. `key` is the delivery's."""
    events = [_Event(item, base_url, now) for item in items]
    latest = _latest(events)
    content = _single(latest[0]) if len(latest) == 1 else _group(latest, thread=key)
    first, level = latest[0], _level(event.type for event in latest)
    subject = f"[{first.tag}] {content.title}"
    context = {"subject": unlinked(subject), "tag": first.tag, "level": level.value, "content": content}
    return Message(
        subject=subject,
        text="\n\n".join(filter(None, (content.headline, *content.paragraphs, *content.ending, content.link))) + "\n",
        html=render_to_string(content.template, context | content.context),
        webhook_body=_webhook_body(events, key=key, subject=subject),
        short=f"{uncalling(content.short)}\n{content.link}",
        thread=content.thread,
        level=level,
        acknowledge=content.acknowledge,
    )


@dataclass(frozen=True, slots=True)
class _Event:
    """A payload, with the texts about it."""

    payload: Payload
    base_url: str
    now: datetime

    @property
    def type(self) -> EventType:
        return self.payload.event_type

    @property
    def name(self) -> str:
        payload = self.payload
        name = payload.location or payload.title or (self.url if payload.monitor == payload.url else payload.monitor)
        return one_line(name) or ("Pulsekeeper" if self.type is EventType.TEST else "A monitor")

    @property
    def url(self) -> str:
        """Return the monitor's address without query values, which may be secret: many people read alerts."""
        return one_line(shown_address(self.payload.url), limit=_URL_CHARS)

    @property
    def link(self) -> str:
        return f"{self.base_url}{self.payload.path}"

    @property
    def tag(self) -> str:
        ends_at = self.payload.expires_at
        is_expired = self.type in EXPIRY and ends_at is not None and from_ms(ends_at) <= self.now
        return "EXPIRED" if is_expired else WORDS[self.type].tag

    @property
    def expires(self) -> str:
        if self.payload.expires_at is None:
            return "expires soon"
        at = from_ms(self.payload.expires_at)
        return f"expires in {duration(at - self.now)}" if at > self.now else f"expired {duration(self.now - at)} ago"

    @property
    def sentence(self) -> str:
        by = one_line(self.payload.by or "") or "A member"
        return WORDS[self.type].sentence.format(name=self.name, expires=self.expires, by=by)

    @property
    def trouble(self) -> str:
        return "down" if self.payload.location_id is None else "offline"

    @property
    def on_call(self) -> str:
        """Return what identifies the gap or shift of a schedule, or the policy, or an empty string."""
        about = self.payload.schedule_id or self.payload.policy_id
        return f"{about}.{self.payload.started_at}" if about else ""

    @property
    def started_at(self) -> datetime | None:
        return None if self.payload.started_at is None else from_ms(self.payload.started_at)

    @property
    def ended_at(self) -> datetime | None:
        """Return the end of the outage, or None if it is not over."""
        if self.type not in OVER:
            return None
        return from_ms(self.payload.at if self.payload.resolved_at is None else self.payload.resolved_at)

    def detail(self, *, limit: int = DETAIL_CHARS) -> str:
        """Return the reason in the target's words, unless the outage is over."""
        return "" if self.type in OVER else one_line(self.payload.detail or "", limit=limit)

    def rows(self) -> list[tuple[str, str]]:
        """Return labels and values: the times, the reason, and what the failing check of an ongoing outage saw."""
        payload = self.payload
        code = payload.reason_code or ""
        seen = {} if self.type in OVER else payload.evidence
        rows = [
            *self._times(),
            ("Reason", REASONS.get(code, one_line(code, limit=40))),
            ("Detail", payload.detail),
            ("Answer", seen.get("status_line")),
            ("From", seen.get("address")),
            ("Issuer", seen.get("tls_issuer")),
            *((capfirst(name), value) for name, value in seen.get("facts", ())),
        ]
        texts = [(label, one_line(str(value or ""), limit=DETAIL_CHARS)) for label, value in rows]
        shown = [(label, unlinked(text)) for label, text in texts if text]
        if payload.url:  # the only one that stays a link, if it is one
            is_link = self.url.lower().startswith(("http://", "https://"))
            shown.append(("Address", self.url if is_link else unlinked(self.url)))
        return shown

    def _times(self) -> list[tuple[str, str]]:
        if self.type in EXPIRY:
            return [] if self.payload.expires_at is None else [("Expires", written(from_ms(self.payload.expires_at)))]
        started, ended = self.started_at, self.ended_at
        if started is None or self.payload.title:  # the detail has the times of a schedule, in its time zone
            return [("At", written(from_ms(self.payload.at)))]
        if ended is None:
            return [("Since", f"{written(started)} ({duration(self.now - started)})")]
        return [("Since", written(started)), ("Until", f"{written(ended)} ({duration(ended - started)})")]


def _latest(events: Sequence[_Event]) -> list[_Event]:
    """Keep the latest event per monitor or location, most severe first. Drop events that a later one supersedes."""
    last: dict[tuple[str, EventType | None], _Event] = {}
    for event in events:
        payload = event.payload
        about = payload.monitor_id or payload.incident_id or payload.location_id or event.on_call or event.type
        last[about, event.type if event.type in APART else None] = event
    return sorted(last.values(), key=lambda event: list(WORDS).index(event.type))


def _level(event_types: Iterable[EventType]) -> Level:
    types = set(event_types)
    if types & DOWN:
        return Level.FAILURE
    if types <= {EventType.TEST, EventType.ON_CALL, EventType.ON_CALL_ENDED}:
        return Level.INFO
    return Level.SUCCESS if types <= OVER else Level.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """Differences between messages with one event and with several. `context`: extra values for the template."""

    title: str
    headline: str
    paragraphs: Sequence[str]
    short: str
    link: str
    thread: str
    template: str
    context: dict[str, Any] = field(default_factory=dict)
    ending: Sequence[str] = ()
    acknowledge: Sequence[tuple[str, str]] = ()


def _single(event: _Event) -> _Content:
    payload, rows = event.payload, event.rows()
    expiring = EXPIRY.get(event.type)
    # On-call services drop alerts of a thread that is open there.
    each = {kind: f"{kind}.{payload.at}" for kind in APART - {EventType.SLOW, *EXPIRY}}
    topic = {EventType.SLOW: "slow", **each, **EXPIRY}.get(event.type)
    thread = payload.incident_id or payload.monitor_id or payload.schedule_id or payload.policy_id or "test"
    if payload.location_id is not None:
        thread = f"{payload.location_id}.{payload.started_at}"  # of this time offline
    at = from_ms(payload.at)
    late = f"Delayed: this was the state at {written(at)}." if event.now - at >= _LATE else ""
    seen = "" if event.type in OVER else str(payload.evidence.get("body") or "")
    body = unlinked(several_lines(seen, limit=BODY_CHARS))
    body_title = "Response body" if payload.evidence.get("status_line") else "Received"
    width = max((len(label) for label, _ in rows), default=0) + 2
    why = event.detail()
    if not why and event.type not in OVER and payload.reason_code in REASONS:
        why = f"{REASONS[payload.reason_code]}."
    elif event.started_at and event.ended_at:
        why = f"It was {event.trouble} for {duration(event.ended_at - event.started_at)}."
    return _Content(
        title=f"{event.name}: {expiring}" if expiring else event.name,
        headline=unlinked(event.sentence),
        paragraphs=(
            late,
            "\n".join(f"{f'{label}:':<{width}}{value}" for label, value in rows),
            f"{body_title}:\n{indent(body, '    ')}" if body else "",
        ),
        short=f"{event.sentence} {why}".rstrip(),
        link=event.link,
        thread=f"{thread}.{topic}" if topic else thread,
        template="alerts/single.html",
        context={
            "late": late,
            "rows": rows,
            "body": body,
            "body_title": body_title,
            "acknowledge_url": payload.acknowledge_url,
        },
        ending=(f"Acknowledge: {payload.acknowledge_url}",) if payload.acknowledge_url else (),
        acknowledge=(("Acknowledge", payload.acknowledge_url),) if payload.acknowledge_url else (),
    )


def _group(events: Sequence[_Event], *, thread: str) -> _Content:
    """Return a message about several monitors and locations, most severe first."""
    counts = _counts(events)
    named = [(event, unlinked(event.name), unlinked(_about(event))) for event in events[:MOST_NAMED]]
    texts = [
        f"{event.tag:<11} {name}{f' ({about})' if about else ''}{_acknowledge(event)}" for event, name, about in named
    ]
    lines = [
        {
            "tag": event.tag,
            "level": _level([event.type]).value,
            "name": name,
            "about": about,
            "link": event.link,
            "acknowledge_url": event.payload.acknowledge_url,
        }
        for event, name, about in named
    ]
    rest = _more(events, MOST_NAMED)
    names = " ".join(filter(None, (", ".join(event.name for event in events[:5]), _more(events, 5))))
    return _Content(
        title=counts,
        headline=f"{counts}.",
        paragraphs=("\n".join(filter(None, (*texts, rest))),),
        short=f"{counts}: {names}.",
        link=_link_of_group(events),
        thread=thread,
        template="alerts/group.html",
        context={"lines": lines, "rest": rest},
        acknowledge=[
            (f"Acknowledge {event.name}", event.payload.acknowledge_url)
            for event in events[:5]
            if event.payload.acknowledge_url
        ],
    )


def _acknowledge(event: _Event) -> str:
    """Return a line for the text of a group, or nothing."""
    url = event.payload.acknowledge_url
    return f"\n{'':<11} Acknowledge: {url}" if url else ""


def _counts(events: Sequence[_Event]) -> str:
    """Return for example `12 monitors are down, 3 recovered`."""
    counted = Counter(EventType.STILL_DOWN if event.type is EventType.REMINDER else event.type for event in events)
    parts = []
    named = False
    for event_type, number in counted.items():
        noun, verb = WORDS[event_type].noun, WORDS[event_type].verb
        if number != 1:
            first, blank, rest = verb.partition(" ")
            noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
            verb = f"{_PLURALS.get(first, first)}{blank}{rest}"
        if noun.startswith("monitor"):
            noun, named = "" if named else noun, True
        parts.append(" ".join(filter(None, (str(number), noun, verb))))
    return ", ".join(parts)


def _about(event: _Event) -> str:
    if event.type in EXPIRY:
        return f"{EXPIRY[event.type]} {event.expires}"
    started, ended, when = event.started_at, event.ended_at, ""
    if event.on_call:
        pass
    elif started and ended:
        when = f"was {event.trouble} for {duration(ended - started)}"
    elif started:
        when = f"since {f'{started:%H:%M:%S} UTC' if started.date() == event.now.date() else written(started)}"
    return ": ".join(filter(None, (when, event.detail(limit=120))))


def _link_of_group(events: Sequence[_Event]) -> str:
    page = "incidents"
    if all(event.payload.location_id for event in events):
        page = "locations"
    elif all(event.on_call for event in events):
        page = "on-call"
    return f"{events[0].base_url}/{page}"


def _more(events: Sequence[_Event], shown: int) -> str:
    return f"and {len(events) - shown} more" if len(events) > shown else ""


def _webhook_body(events: Sequence[_Event], *, key: str, subject: str) -> dict[str, Any]:
    head: dict[str, Any] = {"id": key, "version": 1}
    if len(events) == 1:
        return head | _item(events[0])
    return head | {
        "event": "group",
        "at": max(event.payload.at for event in events),
        "text": subject,
        "link": _link_of_group(events),
        "items": [_item(event) for event in events[:MOST_ITEMS]],
        "left_out": max(len(events) - MOST_ITEMS, 0),
    }


def _item(event: _Event) -> dict[str, Any]:
    payload = event.payload
    monitor = {"id": payload.monitor_id, "name": payload.monitor, "type": payload.type, "url": payload.url}
    incident = {
        "id": payload.incident_id,
        "started_at": payload.started_at,
        "resolved_at": payload.resolved_at,
        "reason_code": payload.reason_code,
        "detail": payload.detail,
    }
    item: dict[str, Any] = {
        "event": payload.event_type.value,
        "at": payload.at,
        "text": event.sentence,
        "monitor": monitor if payload.monitor_id is not None else None,
        "location": {"id": payload.location_id, "name": payload.location} if payload.location_id is not None else None,
        "project": payload.project,
        "incident": incident if payload.incident_id is not None else None,
        "detail": payload.detail,
        "expires_at": payload.expires_at,
        "link": event.link,
    }
    if payload.schedule_id is not None:
        times = {"starts_at": payload.started_at, "ends_at": payload.resolved_at}
        item["schedule"] = {"id": payload.schedule_id, "name": payload.title, **times}
    if payload.policy_id is not None:
        item["policy"] = {"id": payload.policy_id, "name": payload.title}
    return item if payload.acknowledge_url is None else item | {"acknowledge_url": payload.acknowledge_url}
