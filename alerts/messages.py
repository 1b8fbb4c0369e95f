"""Render the events of a delivery as a message. Pure, except for the templates of its HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.template.loader import render_to_string

from alerts.events import DOWN, EXPIRY, OVER, SEVERITY, WORDS, EventType, Payload
from alerts.wording import (
    BODY_CHARS,
    DETAIL_CHARS,
    NAME_CHARS,
    duration,
    moment,
    one_line,
    several_lines,
    uncalling,
    unlinked,
    written,
)
from checks.evidence import Mask, shown_url
from checks.spec import ReasonCode

MOST_NAMED = 50
"""Lines of a group's text. Further events are counted."""
MOST_ITEMS = 500
"""Items of a group's webhook body."""
_LATE = timedelta(minutes=15)
_URL_CHARS = 500
_NO_SECRETS = Mask(())


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
    have the same `thread`.
    """

    subject: str
    text: str
    html: str
    webhook_body: dict[str, Any]
    short: str
    thread: str
    level: Level


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
    ReasonCode.WORKER_LOST: "Check did not finish",
}


def render(items: Sequence[Payload], *, key: str, base_url: str, now: datetime) -> Message:
    """Render at least one event, in chronological order. `key` is the delivery's."""
    latest = _latest(items)
    if len(latest) == 1:
        single = _Single(latest[0], base_url=base_url, now=now)
        subject, text, html, short = single.subject, single.text, single.html, single.short
        thread, level = single.thread, single.level
    else:
        group = _Group(latest, base_url=base_url, now=now)
        subject, text, html, short = group.subject, group.text, group.html, group.short
        thread, level = key, group.level
    webhook_body = _webhook_body(items, key=key, subject=subject, base_url=base_url, now=now)
    return Message(subject, text, html, webhook_body, short, thread, level)


def _latest(items: Sequence[Payload]) -> list[Payload]:
    """Keep the latest event per monitor, most severe first. Drop events that a later one supersedes."""
    last = {
        (
            i.monitor_id or i.incident_id or i.event_type,
            EXPIRY.get(i.event_type, i.event_type is EventType.SLOW),
        ): i
        for i in items
    }
    return sorted(last.values(), key=lambda i: SEVERITY.index(i.event_type))


def _name(payload: Payload) -> str:
    name = _url(payload) if payload.monitor == payload.url else payload.monitor
    return one_line(name, limit=NAME_CHARS) or ("Pulsekeeper" if payload.event_type is EventType.TEST else "A monitor")


def _url(payload: Payload) -> str:
    """Return the monitor's address without query values, which may be secret: many people read alerts."""
    return one_line(shown_url(payload.url, _NO_SECRETS), limit=_URL_CHARS)


def _link(payload: Payload, base_url: str) -> str:
    if payload.incident_id is not None:
        return f"{base_url}/incidents/{payload.incident_id}"
    return base_url if payload.monitor_id is None else f"{base_url}/monitors/{payload.monitor_id}"


def _level(event_types: Iterable[EventType]) -> Level:
    types = set(event_types)
    if types & DOWN:
        return Level.FAILURE
    if types == {EventType.TEST}:
        return Level.INFO
    return Level.SUCCESS if types <= OVER else Level.WARNING


def _tag(payload: Payload, now: datetime) -> str:
    over = payload.expires_at is not None and moment(payload.expires_at) <= now
    return "EXPIRED" if over and payload.event_type in EXPIRY else WORDS[payload.event_type].tag


def _expires(payload: Payload, now: datetime) -> str:
    if payload.expires_at is None:
        return "expires soon"
    at = moment(payload.expires_at)
    return f"expires in {duration(at - now)}" if at > now else f"expired {duration(now - at)} ago"


def _sentence(payload: Payload, now: datetime) -> str:
    by = one_line(payload.by or "", limit=NAME_CHARS) or "A member"
    return WORDS[payload.event_type].sentence.format(name=_name(payload), expires=_expires(payload, now), by=by)


def _when(payload: Payload, now: datetime) -> list[tuple[str, str]]:
    """Return rows of label and value: start, end and duration."""
    if payload.event_type in EXPIRY:
        return [("Expires", written(moment(payload.expires_at)))] if payload.expires_at is not None else []
    if payload.started_at is None:
        return [("At", written(moment(payload.at)))]
    started = moment(payload.started_at)
    if payload.event_type not in OVER:
        return [("Since", f"{written(started)} ({duration(now - started)})")]
    ended = moment(payload.at if payload.resolved_at is None else payload.resolved_at)
    return [("Since", written(started)), ("Until", f"{written(ended)} ({duration(ended - started)})")]


def _why(payload: Payload) -> list[tuple[str, str]]:
    rows = []
    if payload.reason_code:
        rows.append(("Reason", REASONS.get(payload.reason_code, one_line(payload.reason_code, limit=40))))
    if payload.detail:
        rows.append(("Detail", one_line(payload.detail, limit=DETAIL_CHARS)))
    return rows


def _seen(payload: Payload) -> list[tuple[str, str]]:
    """Return what the failing check saw, unless the outage is over."""
    if payload.event_type in OVER:
        return []
    labels = {"status_line": "Answer", "address": "From", "tls_issuer": "Issuer"}
    return [
        (label, one_line(str(payload.evidence[name]), limit=DETAIL_CHARS))
        for name, label in labels.items()
        if payload.evidence.get(name)
    ]


class _Single:
    def __init__(self, payload: Payload, *, base_url: str, now: datetime) -> None:
        self._facts, self._now = payload, now
        self._link = _link(payload, base_url)
        body = "" if payload.event_type in OVER else payload.evidence.get("body") or ""
        self._body = unlinked(several_lines(str(body), limit=BODY_CHARS))

    @property
    def thread(self) -> str:
        payload = self._facts
        about = payload.incident_id or payload.monitor_id or "test"
        return f"{about}.{EXPIRY[payload.event_type]}" if payload.event_type in EXPIRY else about

    @property
    def level(self) -> Level:
        return _level([self._facts.event_type])

    @property
    def subject(self) -> str:
        about = EXPIRY.get(self._facts.event_type)
        return f"[{_tag(self._facts, self._now)}] {_name(self._facts)}{f': {about}' if about else ''}"

    @property
    def _rows(self) -> list[tuple[str, str]]:
        payload = self._facts
        rows = [
            (label, unlinked(value))
            for label, value in [*_when(payload, self._now), *_why(payload), *_seen(payload)]
            if value
        ]
        if payload.url:  # the only address that stays a link
            rows.append(("Address", _url(payload)))
        return rows

    @property
    def _late(self) -> str:
        at = moment(self._facts.at)
        if self._now - at < _LATE:
            return ""
        return f"Delayed: this was the state at {written(at)}."

    @property
    def text(self) -> str:
        rows = self._rows
        width = max((len(label) for label, _ in rows), default=0) + 2
        parts = [
            unlinked(_sentence(self._facts, self._now)),
            self._late,
            "\n".join(f"{f'{label}:':<{width}}{value}" for label, value in rows),
            f"Response body:\n{_indented(self._body)}" if self._body else "",
            self._link,
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def html(self) -> str:
        return render_to_string(
            "alerts/single.html",
            {
                "subject": unlinked(self.subject),
                "tag": _tag(self._facts, self._now),
                "level": self.level.value,
                "headline": unlinked(_sentence(self._facts, self._now)),
                "late": self._late,
                "rows": self._rows,
                "body": self._body,
                "link": self._link,
            },
        )

    @property
    def short(self) -> str:
        payload = self._facts
        parts = [_sentence(payload, self._now)]
        if payload.detail and payload.event_type not in OVER:
            parts.append(one_line(payload.detail, limit=DETAIL_CHARS))
        elif payload.reason_code in REASONS and payload.event_type not in OVER:
            parts.append(f"{REASONS[payload.reason_code]}.")
        elif payload.started_at is not None and payload.event_type in OVER:
            ended = moment(payload.at if payload.resolved_at is None else payload.resolved_at)
            parts.append(f"It was down for {duration(ended - moment(payload.started_at))}.")
        return f"{uncalling(' '.join(parts))}\n{self._link}"


class _Group:
    """A message about several monitors, most severe first."""

    def __init__(self, items: Sequence[Payload], *, base_url: str, now: datetime) -> None:
        self._items, self._now = items, now
        self._base_url = base_url
        self._link = f"{base_url}/incidents"

    @property
    def level(self) -> Level:
        return _level(item.event_type for item in self._items)

    @property
    def _counts(self) -> str:
        """`12 monitors are down, 3 recovered`."""
        counted = Counter(
            EventType.STILL_DOWN if i.event_type is EventType.REMINDER else i.event_type for i in self._items
        )
        parts = []
        named = False
        for event_type, number in counted.items():
            words = WORDS[event_type]
            noun = words.noun[number != 1]
            if noun.startswith("monitor"):
                noun, named = "" if named else noun, True
            parts.append(" ".join(filter(None, (str(number), noun, words.verb[number != 1]))))
        return ", ".join(parts)

    @property
    def subject(self) -> str:
        return f"[{_tag(self._items[0], self._now)}] {self._counts}"

    @property
    def _lines(self) -> list[tuple[str, str, str, str]]:
        """Return tag, name, description and link of each event."""
        return [
            (
                _tag(item, self._now),
                unlinked(_name(item)),
                unlinked(self._about(item)),
                _link(item, self._base_url),
            )
            for item in self._items[:MOST_NAMED]
        ]

    def _about(self, item: Payload) -> str:
        if item.event_type in EXPIRY:
            return f"{EXPIRY[item.event_type]} {_expires(item, self._now)}"
        parts = []
        if item.started_at is not None and item.event_type in OVER:
            ended = moment(item.at if item.resolved_at is None else item.resolved_at)
            parts.append(f"was down for {duration(ended - moment(item.started_at))}")
        elif item.started_at is not None:
            started = moment(item.started_at)
            today = started.date() == self._now.date()
            parts.append(f"since {f'{started:%H:%M:%S} UTC' if today else written(started)}")
        if item.detail and item.event_type not in OVER:
            parts.append(one_line(item.detail, limit=120))
        return ": ".join(parts)

    @property
    def _rest(self) -> str:
        left = len(self._items) - MOST_NAMED
        return f"and {left} more" if left > 0 else ""

    @property
    def text(self) -> str:
        lines = [f"{tag:<11} {name}{f' ({about})' if about else ''}" for tag, name, about, _ in self._lines]
        if self._rest:
            lines.append(self._rest)
        return "\n\n".join([f"{self._counts}.", "\n".join(lines), self._link]) + "\n"

    @property
    def html(self) -> str:
        return render_to_string(
            "alerts/group.html",
            {
                "subject": unlinked(self.subject),
                "tag": _tag(self._items[0], self._now),
                "level": self.level.value,
                "headline": f"{self._counts}.",
                "lines": [
                    {
                        "tag": tag,
                        "level": _level([item.event_type]).value,
                        "name": name,
                        "about": about,
                        "link": link,
                    }
                    for item, (tag, name, about, link) in zip(self._items, self._lines, strict=False)
                ],
                "rest": self._rest,
                "link": self._link,
            },
        )

    @property
    def short(self) -> str:
        names = [_name(item) for item in self._items[:5]]
        left = len(self._items) - len(names)
        listed = ", ".join(names) + (f" and {left} more" if left else "")
        return f"{uncalling(f'{self._counts}: {listed}.')}\n{self._link}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _webhook_body(items: Sequence[Payload], *, key: str, subject: str, base_url: str, now: datetime) -> dict[str, Any]:
    head: dict[str, Any] = {"id": key, "version": 1}
    if len(items) == 1:
        return head | _item(items[0], base_url=base_url, now=now)
    return head | {
        "event": "group",
        "at": max(item.at for item in items),
        "text": subject,
        "link": f"{base_url}/incidents",
        "items": [_item(item, base_url=base_url, now=now) for item in items[:MOST_ITEMS]],
        "left_out": max(len(items) - MOST_ITEMS, 0),
    }


def _item(payload: Payload, *, base_url: str, now: datetime) -> dict[str, Any]:
    return {
        "event": payload.event_type.value,
        "at": payload.at,
        "text": _sentence(payload, now),
        "monitor": None
        if payload.monitor_id is None
        else {"id": payload.monitor_id, "name": payload.monitor, "type": payload.type, "url": payload.url},
        "project": payload.project,
        "incident": None
        if payload.incident_id is None
        else {
            "id": payload.incident_id,
            "started_at": payload.started_at,
            "resolved_at": payload.resolved_at,
            "reason_code": payload.reason_code,
            "detail": payload.detail,
        },
        "detail": payload.detail,
        "expires_at": payload.expires_at,
        "link": _link(payload, base_url),
    }
