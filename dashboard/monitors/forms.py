"""The form of a monitor: converts input to a body for the API, and assigns the API's errors to fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import msgspec
from django import forms
from django.db.models import TextChoices
from django.forms.boundfield import BoundField
from django.http import QueryDict

from checks.probes.http.spec import RuleType
from core.forms import sentence
from dashboard.durations import MS_OF, parse_duration
from dashboard.forms import (
    CountField,
    DurationField,
    MultilineField,
    ObjectForm,
    PlainRenderer,
    ProjectField,
    project_choices,
)
from monitors import configuration, types
from monitors.models import Monitor
from monitors.types.base import MonitorType
from monitors.types.http import HEADER_TYPES, Header, HttpType, Rule
from monitors.types.settings import MonitorConfig, Setting
from projects.access import Caller

_MOVING = "Shared with its members. Another owner's project gets the monitor without header values and body."
_PLACE = re.compile(r"(\w{1,40})\[(\d{1,3})\](?:\.(\w{1,40}))?")
_TARGETS = {"content_rules": "rules", "request_headers": "headers", "type": "kinds"}


def form_field(setting: Setting) -> forms.Field:
    common: dict[str, Any] = {"label": setting.label, "help_text": setting.help, "required": False}
    attributes = {"placeholder": setting.placeholder} if setting.placeholder else {}
    if setting.item in (Rule, Header):
        return forms.Field(**common)  # no input of its own: shows errors of all rows together
    if setting.item is not None:
        return LinesField(widget=forms.Textarea(attrs={"class": "code", "rows": 5}), **common)
    if setting.choices:
        return forms.ChoiceField(choices=[(choice, choice) for choice in setting.choices], **common)
    if setting.type is bool:
        return forms.BooleanField(**common)
    if setting.unit:
        return DurationField(
            unit=setting.unit,
            minimum=setting.minimum,
            maximum=setting.maximum,
            suggestions=setting.suggestions,
            **common,
        )
    if setting.type is int:
        if setting.nullable:
            common["widget"] = forms.TextInput(attrs={"inputmode": "numeric", **attributes})
        return CountField(
            min_value=setting.minimum, max_value=setting.maximum, suggestions=setting.suggestions, **common
        )
    if setting.multiline:
        attributes |= {"class": "code", "rows": "5", "spellcheck": "false"}
        return MultilineField(strip=False, empty_value=None, widget=forms.Textarea(attrs=attributes), **common)
    widget = forms.TextInput(attrs=attributes | ({"spellcheck": "false"} if attributes else {}))
    return forms.CharField(max_length=setting.max_length, widget=widget, **common)


class LinesField(forms.CharField):
    """A list of texts, one per line."""

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value


def _code_field(label: str, max_length: int, placeholder: str, **kwargs: Any) -> forms.CharField:
    attrs = {"autocomplete": "off", "spellcheck": "false", "class": "code", "placeholder": placeholder}
    widget = forms.TextInput(attrs=attrs)
    return forms.CharField(label=label, max_length=max_length, required=False, widget=widget, **kwargs)


class Row(forms.Form):
    """A row of the form, for a content rule or a request header. Rows without text in a field of `typed` are ignored.

    `aliases` are the row's field names by those of the API, where they differ.
    """

    default_renderer = PlainRenderer
    setting: ClassVar[str]
    typed: ClassVar[tuple[str, ...]]
    aliases: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def rows(cls, data: QueryDict | None, config: MonitorConfig, *, blank: dict[str, Any], **kwargs: Any) -> list[Self]:
        """Return a row for each item of the setting, and blank ones up to its maximum."""
        count = types.settings()[cls.setting].max_length or 0
        rows = [*map(cls.initial_of, config[cls.setting]), *[blank] * count][:count]
        return [
            cls(data, prefix=f"{cls.prefix}-{index}", initial=initial, **kwargs) for index, initial in enumerate(rows)
        ]

    @property
    def is_blank(self) -> bool:
        return not any(self.cleaned_data.get(name) for name in self.typed)

    @staticmethod
    def initial_of(item: Any) -> dict[str, Any]:
        raise NotImplementedError

    def item(self) -> Rule | Header:
        """Return the setting's item. Requires valid data."""
        raise NotImplementedError


class RuleKind(TextChoices):
    """Kinds of content rules.

    The API's json_field is two kinds, with and without `equals`: an empty `equals` is a value.
    """

    CONTAINS = "contains", "Text is there"
    ABSENT = "absent", "Text is not there"
    JSON_EQUALS = "json_equals", "JSON field equals"
    JSON_EXISTS = "json_exists", "JSON field exists"


_TEXT_KINDS = {RuleType.TEXT_CONTAINS: RuleKind.CONTAINS, RuleType.TEXT_ABSENT: RuleKind.ABSENT}


class RuleRow(Row):
    kind = forms.ChoiceField(label="Rule", choices=RuleKind.choices)
    path = _code_field("Path in the JSON", 128, "data.items.0.status")
    value = _code_field("Text", 256, "to the letter", strip=False)
    prefix = "rule"
    setting = "content_rules"
    typed = ("path", "value")
    aliases: ClassVar = {"type": "kind", "equals": "value"}

    def item(self) -> Rule:
        path, value = self.cleaned_data["path"] or None, self.cleaned_data["value"]
        match self.cleaned_data["kind"]:
            case RuleKind.JSON_EXISTS:
                return Rule(RuleType.JSON_FIELD, path=path)
            case RuleKind.JSON_EQUALS:
                return Rule(RuleType.JSON_FIELD, path=path, equals=value)
            case RuleKind.ABSENT:
                return Rule(RuleType.TEXT_ABSENT, value or None)
            case _:
                return Rule(RuleType.TEXT_CONTAINS, value or None)

    @staticmethod
    def initial_of(item: Rule) -> dict[str, Any]:
        if item.type is not RuleType.JSON_FIELD:
            return {"kind": _TEXT_KINDS[item.type], "value": item.value}
        kind = RuleKind.JSON_EXISTS if item.equals is None else RuleKind.JSON_EQUALS
        return {"kind": kind, "path": item.path, "value": item.equals}


class HeaderRow(Row):
    """A request header. Values are write-only: `stored` headers keep their value if none is typed."""

    name = _code_field("Name", 256, "Authorization")
    value = _code_field("Value", 4096, "Bearer …")
    type = forms.ChoiceField(
        label="Shown as",
        required=False,
        choices=[("", "Header"), *zip(HEADER_TYPES, ("Bearer token", "API key", "Custom"), strict=True)],
    )
    prefix = "header"
    setting = "request_headers"
    typed = ("name", "value")

    def __init__(self, *args: Any, stored: Collection[Header] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored = {header.name.lower(): header for header in stored}
        if self.is_stored:
            dropped = self._stored[self._name].dropped
            placeholder = "enter it again" if dropped else "stored; leave empty to keep"
            self.fields["value"].widget.attrs["placeholder"] = placeholder

    @property
    def _name(self) -> str:
        return str(self["name"].value() or "").strip().lower()

    @property
    def is_stored(self) -> bool:
        return self._name in self._stored

    def clean(self) -> None:
        name, value = self.cleaned_data.get("name"), self.cleaned_data.get("value")
        if value and name == "":
            self.add_error("name", "Name the header that has this value.")
        if name and value == "" and not self.is_stored:
            self.add_error("value", "Type the value: one that is stored is neither shown nor copied.")

    def item(self) -> Header:
        given = self.cleaned_data
        return Header(given["name"], given["value"], given["type"] or None)

    @staticmethod
    def initial_of(item: Header) -> dict[str, Any]:
        return {"name": item.name, "type": item.type}


class MonitorForm(ObjectForm):
    """The form of the monitor `stored`, or of a new one with the values of `config`."""

    default_renderer = PlainRenderer
    use_required_attribute = False  # the type decides which fields are required

    type = forms.ChoiceField(label="Type", widget=forms.RadioSelect)

    def __init__(
        self,
        data: QueryDict | None = None,
        *,
        caller: Caller,
        config: MonitorConfig,
        project: str | None = None,
        stored: Monitor | None = None,
    ) -> None:
        initial = _initial(config, is_new=stored is None) | {"project_id": project}
        super().__init__(data, stored=stored, initial=initial)
        self.plan = (caller.user if stored is None else stored.owner).plan
        self.settings = types.settings()
        self.fields |= {name: form_field(setting) for name, setting in self.settings.items()}
        self.fields["project_id"] = ProjectField(
            project_choices(caller),
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
        assert isinstance(interval, DurationField)
        floor_ms = self.plan.min_interval_sec * MS_OF["s"]
        interval.suggestions = [text for text in interval.suggestions if parse_duration(text) >= floor_ms]
        headers = () if stored is None else config["request_headers"]
        self.rules = RuleRow.rows(data, config, blank=_blank_rule(config))
        self.headers = HeaderRow.rows(data, config, blank={}, stored=headers)
        self.rows: Mapping[str, Sequence[Row]] = {"content_rules": self.rules, "request_headers": self.headers}

    @property
    def kind(self) -> MonitorType:
        """Return the selected type, or the default one."""
        value = self["type"].value()
        return types.get(value if value in types.names() else types.DEFAULT)

    def is_valid(self) -> bool:
        valid = super().is_valid()
        return all([valid, *(row.is_valid() for row in self._asked_rows())])  # a list, to validate all rows

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
                value = msgspec.to_builtins([row.item() for row in _filled(self.rows[name])])
            if value or not setting.choices:
                body[name] = value
        if not body["name"]:
            del body["name"]
            if host := _host_of(body.get("url", "")):
                body["name"] = host
        if self.stored is None:
            return body
        before = _unchanged_body(self.stored)
        return {name: value for name, value in body.items() if value != before[name]}

    def refuse(self, field: str | None, reason: str) -> None:
        """Add an error of the API. `content_rules[1].path` is a field of the second row that was sent."""
        place = _PLACE.fullmatch(field or "")
        if place is None or place[1] not in self.rows:
            return super().refuse(field, reason)
        row = _filled(self.rows[place[1]])[int(place[2])]
        name = row.aliases.get(place[3], place[3])
        row.add_error(name if name in row.fields else None, sentence(reason.removeprefix(f"{field}: ")))
        return None

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Return the errors for a list of links: the id of the field, its label, and the text."""
        for form in (self, *self._asked_rows()):
            for name, errors in form.errors.items():
                for text in errors:
                    if name in form.fields:
                        yield _TARGETS.get(name, form[name].auto_id), str(form[name].label), str(text)
                    else:
                        yield "", "", str(text)

    @property
    def sections(self) -> dict[str, list[tuple[BoundField, str]]]:
        """Return the fields of each section and the types that have them, without the fields that are rows."""
        found: dict[str, list[tuple[BoundField, str]]] = {}
        for name, setting in self.settings.items():
            if name not in self.rows:
                found.setdefault(setting.section, []).append((self[name], self.data_for[name]))
        return found

    @cached_property
    def data_for(self) -> dict[str, str]:
        """Return types for the attribute `data-for`: those that have a setting, and those that get results in a way."""
        kinds = types.REGISTRY.values()
        return {name: " ".join(kind.name for kind in kinds if name in kind.asked) for name in self.settings} | {
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

    def _asked_rows(self) -> list[Row]:
        return [row for name, rows in self.rows.items() if name in self.kind.asked for row in rows]


def _filled(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.is_blank]


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


def _unchanged_body(monitor: Monitor) -> dict[str, Any]:
    """Return the body that an unchanged form of a stored monitor would send."""
    config = monitor.public_config
    body: dict[str, Any] = msgspec.to_builtins({name: config[name] for name in types.settings()})
    for header in body["request_headers"]:
        header.pop("value_dropped", None)
    for name, setting in types.settings().items():
        if setting.multiline:
            body[name] = (body[name] or "").replace("\r\n", "\n") or None
    return body | {"type": config.type, "project_id": monitor.project and monitor.project.public_id}


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
