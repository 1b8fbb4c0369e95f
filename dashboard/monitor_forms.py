"""The form of a monitor: what is typed becomes a body of the API, and errors come back to their places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.db.models import TextChoices
from django.forms.utils import ErrorList
from django.http import QueryDict

from checks.probes.http.target import MAX_URL
from core.forms import sentence
from dashboard.choosing import Choices, ProjectField
from dashboard.fields import CountField, PlainRenderer, SpanField
from dashboard.monitor_rows import (
    HeaderRow,
    Row,
    RuleKind,
    RuleRow,
    header_body,
    header_initial,
    rule_body,
    rule_initial,
)
from dashboard.once import OnceForm
from dashboard.spans import MS_OF, parse_span
from monitors.configuration import (
    HTTP_TYPES,
    MAX_HEADERS,
    MAX_RULES,
    MAX_TIMEOUT_MS,
    METHODS,
    MIN_TIMEOUT_MS,
    Header,
    MonitorConfig,
    MonitorType,
)
from monitors.models import Monitor

INTERVALS = ("10s", "30s", "1m", "5m", "10m", "30m", "1h")
_MOVING = "Shared with its members. Another owner's project gets the monitor without header values and body."
_PLACE = re.compile(r"(content_rules|request_headers)\[(\d+)\](?:\.(\w+))?")


class Kind(TextChoices):
    HTTP = MonitorType.HTTP.value, "Website"
    KEYWORD = MonitorType.KEYWORD.value, "Keyword"
    API = MonitorType.API.value, "JSON API"
    HEARTBEAT = MonitorType.HEARTBEAT.value, "Heartbeat"
    SCHEDULER = MonitorType.SCHEDULER.value, "Scheduler"


# What the page asks of each kind, by the names of the API.
_OF_ALL = ("type", "name", "project_id", "interval_sec", "recover_threshold")
_OF_HEARTBEATS = (*_OF_ALL, "grace_sec")
_OF_PROBED = (
    *_OF_ALL,
    "url",
    "method",
    "timeout_ms",
    "slow_ms",
    "expect_status",
    "follow_redirects",
    "check_ssl",
    "check_domain",
    "content_rules",
    "request_headers",
    "request_body",
    "fail_threshold",
)
_ADVANCED_FLAGS = ("expect_status", "follow_redirects", "check_ssl", "check_domain", "request_body")
_ADVANCED = frozenset({*_ADVANCED_FLAGS, "method", "request_headers", "recover_threshold"})
_NEEDED = ("interval_sec", "grace_sec", "timeout_ms", "slow_ms", "fail_threshold", "recover_threshold")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error and where it is, for a list that leads there."""

    target: str
    label: str
    text: str


class MonitorForm(OnceForm):
    """`stored` is the monitor that is edited; a new one may start from the `config` of another."""

    default_renderer = PlainRenderer
    use_required_attribute = False  # what is asked depends on the kind

    type = forms.ChoiceField(label="Kind", choices=Kind.choices, widget=forms.RadioSelect)
    name = forms.CharField(
        required=False,
        max_length=200,
        help_text="Left empty: the host of the address.",
    )
    url = forms.CharField(
        label="Address",
        required=False,
        max_length=MAX_URL,
        widget=forms.URLInput(attrs={"placeholder": "https://shop.example/health", "spellcheck": "false"}),
        help_text="http:// or https://. Passwords belong into a request header.",
    )
    interval_sec = SpanField(label="Interval", required=False, least=1)
    grace_sec = SpanField(
        label="Grace",
        required=False,
        suggestions=("1m", "5m", "15m", "1h"),
        help_text="How late a ping may be.",
    )
    timeout_ms = SpanField(
        label="Timeout",
        required=False,
        unit="ms",
        least=MIN_TIMEOUT_MS,
        most=MAX_TIMEOUT_MS,
        suggestions=("5s", "10s", "30s", "1m"),
        help_text="For the whole check: 1s to 1m.",
    )
    slow_ms = SpanField(
        label="Slow from",
        required=False,
        unit="ms",
        suggestions=("0.5s", "1s", "1.5s", "3s"),
        help_text="An answer this late counts as slow.",
    )
    fail_threshold = CountField(
        label="Failures before down",
        required=False,
        min_value=1,
        suggestions=("1", "2", "3", "4", "5"),
        help_text="So many failed checks in a row.",
    )
    recover_threshold = CountField(
        label="Passes before up again",
        required=False,
        min_value=1,
        suggestions=("1", "2", "3"),
        help_text="So many passed checks, or pings, in a row.",
    )
    method = forms.ChoiceField(
        required=False,
        help_text="HEAD is the lightest, and becomes GET where the body has to be read.",
    )
    expect_status = forms.IntegerField(
        label="Expected status",
        required=False,
        min_value=0,
        max_value=999,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "placeholder": "any 2xx or 3xx"}),
        help_text="Exactly this status, or left empty: any 2xx or 3xx, of a scheduler any 2xx.",
    )
    follow_redirects = forms.BooleanField(
        required=False,
        help_text="Judge the page that redirects lead to, 10 of them at most. Without it a redirect is an answer.",
    )
    check_ssl = forms.BooleanField(
        label="Name certificate problems",
        required=False,
        help_text="An expired or wrong certificate is told as such, not as a failed connection. https only.",
    )
    check_domain = forms.BooleanField(
        label="Watch the domain's registration",
        required=False,
        help_text="Looks up when the registration ends, and warns before it lapses.",
    )
    request_body = forms.CharField(
        label="Body",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"class": "code", "rows": 5, "spellcheck": "false"}),
        help_text="With POST, PUT, PATCH and DELETE. JSON, unless a Content-Type header says otherwise.",
    )
    # Without inputs of their own: what stands beside all rows of a kind, and not beside one.
    content_rules = forms.Field(label="Content rules", required=False)
    request_headers = forms.Field(label="Request headers", required=False)

    def __init__(
        self,
        data: QueryDict | None = None,
        *,
        projects: Choices,
        floor_sec: int,
        config: MonitorConfig,
        project_id: str | None = None,
        stored: Monitor | None = None,
    ) -> None:
        self.stored = stored
        super().__init__(data, initial=_initial(config, is_new=stored is None) | {"project_id": project_id})
        self.fields["project_id"] = ProjectField(
            label="Project",
            projects=projects,
            none="None: yours alone",
            help_text="Shared with its members." if stored is None else _MOVING,
        )
        self._ask_by(config, floor_sec=floor_sec)
        headers = () if stored is None else config.request_headers
        self.rules: list[RuleRow] = [
            RuleRow(data, prefix=f"rule-{index}", initial=initial)
            for index, initial in enumerate(
                _rows(config.content_rules, rule_initial, MAX_RULES, _blank_rule(config))
            )
        ]
        self.headers: list[HeaderRow] = [
            HeaderRow(data, prefix=f"header-{index}", initial=initial, stored=headers)
            for index, initial in enumerate(_rows(config.request_headers, header_initial, MAX_HEADERS, {}))
        ]

    def _ask_by(self, config: MonitorConfig, *, floor_sec: int) -> None:
        """What may be chosen, of which kinds and by which plan."""
        method = self.fields["method"]
        assert isinstance(method, forms.ChoiceField)
        automatic = [] if self.stored is not None else [("", "By the kind")]
        method.choices = [*automatic, *((name, name) for name in METHODS)]
        if self.stored is not None:
            kind = self.fields["type"]
            assert isinstance(kind, forms.ChoiceField)
            kind.choices = [choice for choice in Kind.choices if choice[0] in _reachable(config.type)]
        interval = self.fields["interval_sec"]
        assert isinstance(interval, SpanField)
        interval.suggestions = [text for text in INTERVALS if parse_span(text) >= floor_sec * MS_OF["s"]]

    @property
    def kind(self) -> MonitorType:
        """As chosen so far."""
        value = self["type"].value()
        return MonitorType(value) if value in Kind.values else MonitorType.HTTP

    def is_valid(self) -> bool:
        valid = super().is_valid()
        wrong = [row for row in self._asked_rows() if not row.is_valid()]  # all of them are looked at
        return valid and not wrong

    def clean(self) -> None:
        asked = _asked_of(self.cleaned_data.get("type", self.kind))
        for name in set(self.fields) - set(asked) - {"form_key"}:
            self.errors.pop(name, None)  # it is not on the page of this kind
        for name in _NEEDED:
            if name in asked and self.cleaned_data.get(name, "") is None:
                self.add_error(name, "This is needed.")

    def body(self) -> dict[str, Any]:
        """What is typed, as a body of the API; of a stored monitor what differs from it. With valid data only."""
        kind = MonitorType(self.cleaned_data["type"])
        body = {name: self.cleaned_data[name] for name in _asked_of(kind)}
        if not body["name"]:
            del body["name"]
            if host := _host_of(body.get("url", "")):
                body["name"] = host
        if kind is not MonitorType.HEARTBEAT:
            body["content_rules"] = [row.as_body() for row in _filled(self.rules)]
            body["request_headers"] = [row.as_body() for row in _filled(self.headers)]
            body["request_body"] = _lines(body["request_body"]) or None
            if not body["method"]:
                del body["method"]
        if self.stored is None:
            return body
        before = _body_of(self.stored)
        return {name: value for name, value in body.items() if value != before[name]}

    def refuse(self, field: str | None, reason: str) -> None:
        """`content_rules[1].path` is a field of the second row that was sent."""
        place = _PLACE.fullmatch(field or "")
        if place is None:
            return super().refuse(field, reason)
        rows: Sequence[Row] = self.rules if place[1] == "content_rules" else self.headers
        row = _filled(rows)[int(place[2])]
        text = sentence(reason.removeprefix(f"{field}: "))
        row.add_error(row.names.get(place[3] or ""), text)
        return None

    def problems(self) -> Iterator[Problem]:
        for form in (self, *self._asked_rows()):
            for name, errors in form.errors.items():
                yield from _problems_of(form, name, errors)

    @property
    def opens_advanced(self) -> bool:
        """Whether something below Advanced is wrong, or is not as it is for most."""
        usual = MonitorConfig(interval_sec=0)
        wrong = _ADVANCED & set(self.errors) or any(row.errors for row in self.headers)
        typed = any(row["name"].value() for row in self.headers)
        unusual = any(self[name].value() not in (None, "", getattr(usual, name)) for name in _ADVANCED_FLAGS)
        return bool(wrong or typed or unusual)

    def _asked_rows(self) -> Iterable[Row]:
        return () if self.kind is MonitorType.HEARTBEAT else (*self.rules, *self.headers)


def _problems_of(form: forms.Form, name: str, errors: ErrorList) -> Iterator[Problem]:
    for text in errors:
        if name not in form.fields:
            yield Problem("", "", str(text))
        else:
            target = {"content_rules": "rules", "request_headers": "headers", "type": "kinds"}.get(name)
            yield Problem(target or form[name].auto_id, str(form[name].label), str(text))


def _asked_of(kind: str) -> Sequence[str]:
    return _OF_HEARTBEATS if kind == MonitorType.HEARTBEAT else _OF_PROBED


def _reachable(kind: MonitorType) -> frozenset[MonitorType]:
    """What a stored monitor may become."""
    return HTTP_TYPES if kind in HTTP_TYPES else frozenset({kind})


def _filled(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.is_blank]


def _rows(
    items: Sequence[Any], initial: Callable[[Any], dict[str, Any]], count: int, blank: dict[str, Any]
) -> list[dict[str, Any]]:
    return [*map(initial, items), *[blank] * count][:count]


def _blank_rule(config: MonitorConfig) -> dict[str, Any]:
    return {"kind": RuleKind.JSON_EQUALS if config.type is MonitorType.API else RuleKind.CONTAINS}


def _initial(config: MonitorConfig, *, is_new: bool) -> dict[str, Any]:
    initial = {field.name: getattr(config, field.name) for field in fields(MonitorConfig)}
    initial["type"] = config.type.value
    if is_new and config == MonitorConfig(interval_sec=config.interval_sec, type=config.type):
        initial |= {"name": "", "method": ""}  # nothing is known yet, so the defaults of the kind hold
    return initial


def _body_of(monitor: Monitor) -> dict[str, Any]:
    """A stored monitor as the form would send it, had nothing been changed."""
    config = monitor.full_config
    body = _initial(config, is_new=False)
    body["content_rules"] = [rule_body(rule) for rule in config.content_rules]
    body["request_headers"] = [header_body(Header(h.name, "", h.type)) for h in config.request_headers]
    body["request_body"] = _lines(config.request_body or "") or None
    body["project_id"] = None if monitor.project is None else monitor.project.public_id
    return body


def _lines(text: str) -> str:
    """Browsers send the line ends of a text area as CRLF, whatever they were."""
    return text.replace("\r\n", "\n")


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
