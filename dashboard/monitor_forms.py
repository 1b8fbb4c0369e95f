"""The form of a monitor: converts input to a body for the API, and assigns the API's errors to fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from django import forms
from django.forms.boundfield import BoundField
from django.forms.utils import ErrorList
from django.http import QueryDict

from checks.probes.http.spec import RuleType
from core.forms import sentence
from dashboard.choosing import Choices, ProjectField
from dashboard.fields import CountField, PlainRenderer, SpanField
from dashboard.monitor_rows import HeaderRow, Row, RuleKind, RuleRow, header_initial, rule_initial
from dashboard.once import OnceForm
from dashboard.spans import MS_OF, parse_span
from monitors import configuration, types
from monitors.models import Monitor
from monitors.types.base import MonitorType
from monitors.types.http import Header, HttpType, Rule
from monitors.types.settings import MonitorConfig, Setting

_MOVING = "Shared with its members. Another owner's project gets the monitor without header values and body."
_PLACE = re.compile(r"(\w{1,40})\[(\d{1,3})\](?:\.(\w{1,40}))?")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error and the element it belongs to, for a list of links."""

    target: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A field of the form, and the monitor types that have it."""

    field: BoundField
    types: str


def form_field(setting: Setting) -> forms.Field:
    said: dict[str, Any] = {"label": setting.label, "help_text": setting.help, "required": False}
    attributes = {"placeholder": setting.placeholder} if setting.placeholder else {}
    if setting.item in (Rule, Header):
        return forms.Field(**said)  # no input of its own: shows errors of all rows together
    if setting.item is not None:
        return LinesField(widget=forms.Textarea(attrs={"class": "code", "rows": 5}), **said)
    if setting.choices:
        return forms.ChoiceField(choices=[(choice, choice) for choice in setting.choices], **said)
    if setting.type is bool:
        return forms.BooleanField(**said)
    if setting.unit:
        least, most = setting.minimum, setting.maximum
        return SpanField(unit=setting.unit, least=least, most=most, suggestions=setting.suggestions, **said)
    if setting.type is int:
        bounds = {"min_value": setting.minimum, "max_value": setting.maximum}
        widget = forms.TextInput(attrs={"inputmode": "numeric", **attributes}) if setting.nullable else None
        return CountField(**bounds, **({"widget": widget} if widget else {}), suggestions=setting.suggestions, **said)
    if setting.multiline:
        attributes |= {"class": "code", "rows": "5", "spellcheck": "false"}
        return forms.CharField(strip=False, widget=forms.Textarea(attrs=attributes), **said)
    widget = forms.TextInput(attrs=attributes | ({"spellcheck": "false"} if attributes else {}))
    return forms.CharField(max_length=setting.max_length, widget=widget, **said)


class LinesField(forms.CharField):
    """A list of texts, one per line."""

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value


class MonitorForm(OnceForm):
    """The form of the monitor `stored`, or of a new one with the values of `config`."""

    default_renderer = PlainRenderer
    use_required_attribute = False  # the type decides which fields are required

    type = forms.ChoiceField(label="Type", widget=forms.RadioSelect)

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
        self.settings = types.settings()
        self.fields |= {name: form_field(setting) for name, setting in self.settings.items()}
        self.fields["project_id"] = ProjectField(
            label="Project",
            projects=projects,
            none="None: yours alone",
            help_text="Shared with its members." if stored is None else _MOVING,
        )
        names = types.names() if stored is None else types.family(stored.kind)
        self.types = [types.get(name) for name in names]
        self.fields["type"].choices = [(kind.name, kind.label) for kind in self.types]  # type: ignore[attr-defined]
        if stored is None:
            for name, setting in self.settings.items():
                if setting.choices:  # the default depends on the type
                    self.fields[name].choices.insert(0, ("", "By the type"))  # type: ignore[attr-defined]
        interval = self.fields["interval_sec"]
        assert isinstance(interval, SpanField)
        interval.suggestions = [text for text in interval.suggestions if parse_span(text) >= floor_sec * MS_OF["s"]]
        headers = () if stored is None else config["request_headers"]
        self.rules: list[RuleRow] = [
            RuleRow(data, prefix=f"rule-{index}", initial=initial)
            for index, initial in enumerate(_rows(config, "content_rules", rule_initial, _blank_rule(config)))
        ]
        self.headers: list[HeaderRow] = [
            HeaderRow(data, prefix=f"header-{index}", initial=initial, stored=headers)
            for index, initial in enumerate(_rows(config, "request_headers", header_initial, {}))
        ]
        self.rows: Mapping[str, Sequence[Row]] = {
            "content_rules": self.rules,
            "request_headers": self.headers,
        }

    @property
    def kind(self) -> MonitorType:
        """Return the selected type, or the default one."""
        value = self["type"].value()
        return types.get(value if value in types.names() else types.DEFAULT)

    @property
    def asked(self) -> Mapping[str, Setting]:
        return self.kind.asked

    def is_valid(self) -> bool:
        valid = super().is_valid()
        wrong = [row for row in self._asked_rows() if not row.is_valid()]  # a list, to validate all of them
        return valid and not wrong

    def clean(self) -> None:
        asked = types.get(self.cleaned_data.get("type", self.kind.name)).asked
        for name in self.settings.keys() - asked.keys():
            self.errors.pop(name, None)  # hidden for this type
        for name, setting in asked.items():
            required = setting.type is int and not setting.nullable
            if required and self.cleaned_data.get(name, "") is None:
                self.add_error(name, "This is needed.")

    def body(self) -> dict[str, Any]:
        """Return a body for the API, for a stored monitor only the changed fields. Requires valid data."""
        kind = types.get(self.cleaned_data["type"])
        body = {"type": kind.name, "project_id": self.cleaned_data["project_id"]}
        for name, setting in kind.asked.items():
            value = self.cleaned_data[name]
            if name in self.rows:
                value = [row.as_body() for row in _filled(self.rows[name])]
            elif setting.multiline:
                value = _lines(value) or None
            if not (setting.choices and not value):
                body[name] = value
        if not body["name"]:
            del body["name"]
            if host := _host_of(body.get("url", "")):
                body["name"] = host
        if self.stored is None:
            return body
        before = _body_of(self.stored)
        return {name: value for name, value in body.items() if value != before[name]}

    def refuse(self, field: str | None, reason: str) -> None:
        """Add an error of the API. `content_rules[1].path` is a field of the second row that was sent."""
        place = _PLACE.fullmatch(field or "")
        if place is None or place[1] not in self.rows:
            return super().refuse(field, reason)
        row = _filled(self.rows[place[1]])[int(place[2])]
        text = sentence(reason.removeprefix(f"{field}: "))
        row.add_error(row.names.get(place[3] or ""), text)
        return None

    def problems(self) -> Iterator[Problem]:
        for form in (self, *self._asked_rows()):
            for name, errors in form.errors.items():
                yield from _problems_of(form, name, errors)

    @property
    def sections(self) -> dict[str, list[Asked]]:
        """Return the fields of each section, without those that are rows."""
        found: dict[str, list[Asked]] = {}
        for name, setting in self.settings.items():
            if name not in self.rows:
                found.setdefault(setting.section, []).append(Asked(self[name], asking(name)))
        return found

    @property
    def asking_for_url(self) -> str:
        return asking("url")

    @property
    def rows_for(self) -> dict[str, str]:
        return {name: asking(name) for name in self.rows}

    @property
    def data_for(self) -> dict[str, str]:
        """Return the types grouped by how they get results: probed, waiting or firing."""
        return {
            "probed": " ".join(kind.name for kind in self.types if not kind.waits),
            "waiting": " ".join(types.waiting()),
            "firing": " ".join(types.firing()),
        }

    @property
    def opens_advanced(self) -> bool:
        """Return whether a field in Advanced has an error or a value other than the default."""
        advanced = {name for name, setting in self.settings.items() if setting.section == "advanced"}
        wrong = advanced & set(self.errors) or any(row.errors for row in self.headers)
        typed = any(row["name"].value() for row in self.headers)
        unusual = any(
            self[name].value() not in (None, "", self.settings[name].default)
            for name in advanced - set(self.rows)
            if not self.settings[name].choices
        )
        return bool(wrong or typed or unusual)

    def _asked_rows(self) -> Iterable[Row]:
        return [row for name, rows in self.rows.items() if name in self.asked for row in rows]


def asking(name: str) -> str:
    """Return the types that have a setting, in the format of the attribute `data-for`."""
    return " ".join(kind.name for kind in types.REGISTRY.values() if name in kind.asked)


def _problems_of(form: forms.Form, name: str, errors: ErrorList) -> Iterator[Problem]:
    for text in errors:
        if name not in form.fields:
            yield Problem("", "", str(text))
        else:
            target = {"content_rules": "rules", "request_headers": "headers", "type": "kinds"}.get(name)
            yield Problem(target or form[name].auto_id, str(form[name].label), str(text))


def _filled(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.is_blank]


def _rows(
    config: MonitorConfig, name: str, initial: Callable[[Any], dict[str, Any]], blank: dict[str, Any]
) -> list[dict[str, Any]]:
    count = types.settings()[name].max_length or 0
    return [*map(initial, config[name]), *[blank] * count][:count]


def _blank_rule(config: MonitorConfig) -> dict[str, Any]:
    kind = types.get(config.type)
    first = kind.first_rule if isinstance(kind, HttpType) else RuleType.TEXT_CONTAINS
    return {"kind": RuleKind.JSON_EQUALS if first is RuleType.JSON_FIELD else RuleKind.CONTAINS}


def _initial(config: MonitorConfig, *, is_new: bool) -> dict[str, Any]:
    initial = {"type": config.type} | {name: config[name] for name in types.settings()}
    if is_new and config == configuration.build({"interval_sec": config.interval_sec, "type": config.type}):
        # Nothing is typed yet, so use the defaults of the type.
        initial |= {"name": ""} | {name: "" for name, one in types.settings().items() if one.choices}
    return initial


def _body_of(monitor: Monitor) -> dict[str, Any]:
    """Return the body that an unchanged form of a stored monitor would send."""
    body = _initial(monitor.public_config, is_new=False)
    for name, setting in types.settings().items():
        if setting.item in (Rule, Header):
            body[name] = [msgspec.to_builtins(item) for item in body[name]]
            for item in body[name]:
                item.pop("value_dropped", None)
        elif setting.item is not None:
            body[name] = list(body[name])
        elif setting.multiline:
            body[name] = _lines(body[name] or "") or None
    body["project_id"] = None if monitor.project is None else monitor.project.public_id
    return body


def _lines(text: str) -> str:
    """Return the text with LF line endings: browsers send CRLF."""
    return text.replace("\r\n", "\n")


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
