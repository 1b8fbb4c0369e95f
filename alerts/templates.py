"""Templates of channels: users' Liquid in place of our title and text of messages about one outage.

They are parsed and rendered in a process with limits (`template_renderer`). One that fails, or reaches a limit, is
replaced by the plain message: no alert is lost through its template.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string

from alerts import messages
from alerts.events import DELAYED, EventType, Payload
from alerts.messages import Message
from alerts.models import AlertChannel
from alerts.transports.webhook import Webhook
from alerts.wording import uncalling
from audit import origin
from checks.evidence import shown_address
from checks.spec import ReasonCode
from core.clock import to_ms
from core.errors import TooManyRequests, ValidationFailed
from core.metrics import Counter
from core.shares import Shares
from core.text import one_line, printable
from core.turns import paused, take_time

logger = logging.getLogger(__name__)

MAX_CHARS = 4_000
TITLE_CHARS = 200
PARTS = ("title", "body")
VARIABLES = (
    *("event", "text", "monitor.name", "monitor.type", "monitor.url", "project", "detail", "link", "at"),
    *("incident.started_at", "incident.resolved_at", "incident.reason_code"),
)
"""Those that forms list. Times are epoch milliseconds."""
_OF_EVENT = {
    **dict.fromkeys((*DELAYED, EventType.REMINDER), "down"),
    **dict.fromkeys((EventType.RECOVERED, EventType.SETTLED), "recovered"),
}
NAMES = tuple(dict.fromkeys(_OF_EVENT.values()))
RENDER_SEC = 5.0  # elapsed time; `template_renderer` limits the CPU time
_OURS = {"id", "link", "acknowledge_url", "event", "type", "reason_code"}
"""Fields whose text is ours, at any depth."""
_TOO_LONG = "takes too long"
_TOO_MUCH = "takes too long, or too much memory"
_shares = Shares(at_once=2, most_waiting=64, most_present=8, patience_sec=3.0)
"""Renderers of a process: more would multiply their memory, and take its CPU."""

TEMPLATES = Counter(
    "pulsekeeper_templates_total",
    "Messages with a template of their channel: `rendered`, or `failed` and replaced by the plain message.",
    ("outcome",),
    [("rendered",), ("failed",)],
)


class TemplateError(Exception):
    """A template that cannot be used, and why."""


def settle(given: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return valid templates in their stored form, without empty ones. Raises ValidationFailed."""
    found: dict[str, dict[str, str]] = {}
    for name in NAMES:
        texts = {part: given[name][part] for part in PARTS if given.get(name, {}).get(part, "").strip()}
        if texts:
            found[name] = texts
    check(found)
    return found


def check(templates: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ValidationFailed for templates `{down?, recovered?}` of `{title?, body?}` with an error of syntax."""
    if sources := tuple((f"{name}.{part}", text) for name, parts in templates.items() for part, text in parts.items()):
        _check(sources)


@lru_cache(maxsize=200)  # a form and a file are checked before they are saved, and again then
def _check(sources: tuple[tuple[str, str], ...]) -> None:
    take_time()
    try:
        with paused(), _shares.turn(*origin.users()):
            answers = _run(dict(sources), None)
    except TemplateError as error:
        raise ValidationFailed(f"{sources[0][0]}: line 1: {error}.", field="templates") from None
    for name, answer in answers.items():
        if "error" in answer:
            raise ValidationFailed(f"{name}: line {answer['line']}: {answer['error']}.", field="templates")


def render(parts: Mapping[str, str], variables: Mapping[str, Any], *users: str) -> dict[str, str]:
    """Return the texts of a message's title and body. Raises TemplateError. `users` wait in turn."""
    try:
        with paused(), _shares.turn(*users):
            answers = _run(parts, variables)
    except TooManyRequests:
        raise TemplateError("waited too long for others") from None
    for part, answer in answers.items():
        if "error" in answer:
            raise TemplateError(f"{part}, line {answer['line']}: {answer['error']}")
    return {part: answer["text"] for part, answer in answers.items()}


def applied(channel: AlertChannel, items: Sequence[Payload], message: Message) -> Message:
    """Return the message with the texts of the channel's templates. Groups, and those that fail, keep theirs."""
    parts = channel.templates.get(_OF_EVENT.get(items[0].event_type, "")) if len(items) == 1 else None
    if not parts:
        return message
    try:
        texts = render(parts, variables_of(message, channel.kind), f"user:{channel.owner_id}")
        templated = with_texts(message, texts)
    except Exception as error:  # also ours: the outage counts more than its text
        logger.warning(
            "a template of the channel %s failed, and the plain message is sent: %s",
            channel.public_id,
            one_line(str(error), limit=300) if isinstance(error, TemplateError) else type(error).__name__,
            exc_info=not isinstance(error, TemplateError),
        )
        TEMPLATES.add(1, "failed")
        return message
    TEMPLATES.add(1, "rendered")
    return templated


def preview(kind: str, name: str, parts: Mapping[str, str], *, now: datetime) -> Message:
    """Return the message about a sample event. Raises ValidationFailed and TemplateError."""
    check({name: parts})
    message = messages.render([_sample(name, now)], key="dlv_sample", base_url=settings.BASE_URL, now=now)
    return with_texts(message, render(parts, variables_of(message, kind), *origin.users()))


def _sample(name: str, now: datetime) -> Payload:
    since = now - timedelta(minutes=5)
    return Payload(
        EventType.DOWN if name == "down" else EventType.RECOVERED,
        at=to_ms(now),
        monitor_id="mon_k3r5wq7zx2d4m6nbhy2ct3vpfe",
        monitor="Shop",
        url="https://shop.example/health",
        project="Website",
        incident_id="inc_m2v6xq4zk7wd3nb5rythp2cfea",
        started_at=to_ms(since),
        resolved_at=None if name == "down" else to_ms(now),
        reason_code=ReasonCode.HTTP_FAILURE,
        detail="Answered 503 Service Unavailable.",
    )


def with_texts(message: Message, texts: Mapping[str, str]) -> Message:
    """Return the message with another title and body, each unless it is blank. Links to acknowledge are kept."""
    if title := one_line(texts.get("title", ""), limit=TITLE_CHARS):
        message = replace(message, subject=title, webhook_body=message.webhook_body | {"title": title})
    if body := printable(texts.get("body", ""), keep_lines=True).strip():
        context = {"subject": message.subject, "body": body, "acknowledge": message.acknowledge}
        links = "".join(f"\n{label}: {url}\n" for label, url in message.acknowledge)
        message = replace(
            message,
            text=f"{body}\n{links}",
            html=render_to_string("alerts/templated.html", context),
            short=body,
            webhook_body=message.webhook_body | {"text": body},
        )
    return message


def variables_of(message: Message, kind: str) -> dict[str, Any]:
    """Return what templates can read: the fields of the webhook's payload.

    For people, links and mentions in values are disabled, as in our own texts: some values are from targets.
    """
    fields = message.webhook_body
    return fields if kind == Webhook.name else {name: _shown(name, value) for name, value in fields.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(key, each) for key, each in value.items()}
    if not isinstance(value, str) or name in _OURS:
        return value
    return one_line(shown_address(value), limit=500) if name == "url" else uncalling(value)


def _run(sources: Mapping[str, str], variables: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return what the renderer says, by name. Raises TemplateError."""
    try:
        done = subprocess.run(  # noqa: S603 - our own file, by our own interpreter
            [sys.executable, "-I", Path(__file__).with_name("template_renderer.py")],
            input=json.dumps({"templates": sources, "variables": variables}).encode(),
            capture_output=True,
            env={"TZ": "UTC"},  # it needs none of our secrets
            timeout=RENDER_SEC,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateError(_TOO_LONG) from None
    except OSError as error:
        raise TemplateError(f"could not be rendered ({type(error).__name__})") from None
    if done.returncode == -signal.SIGXCPU:
        raise TemplateError(_TOO_LONG)
    if done.returncode != 0:
        logger.info("a template was refused: status %d, %s", done.returncode, done.stderr[-300:])
        raise TemplateError(_TOO_MUCH)
    answer: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return answer
