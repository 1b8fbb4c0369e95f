"""Rows of the monitor form: content rules and request headers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from django import forms
from django.db.models import TextChoices
from django.http import QueryDict

from checks.spec import RuleType
from dashboard.forms import PlainRenderer
from monitors import types
from monitors.types.content import Rule
from monitors.types.http import HEADER_TYPES, Header
from monitors.types.settings import MonitorConfig


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

    @staticmethod
    def initial_of(item: Any) -> dict[str, Any]:
        raise NotImplementedError

    def item(self) -> Rule | Header:
        """Return the setting's item. Requires valid data."""
        raise NotImplementedError


class RuleKind(TextChoices):
    """Kinds of content rules. The API's json_field is two: without `equals`, and with one that may be empty."""

    CONTAINS = "contains", "Contains text"
    ABSENT = "absent", "Does not contain text"
    JSON_EQUALS = "json_equals", "JSON field equals"
    JSON_EXISTS = "json_exists", "JSON field exists"


_JSON_KINDS = (RuleKind.JSON_EQUALS, RuleKind.JSON_EXISTS)
_TEXT_KINDS = {RuleType.TEXT_CONTAINS: RuleKind.CONTAINS, RuleType.TEXT_ABSENT: RuleKind.ABSENT}


class _RuleSelect(forms.Select):
    """The kinds of rules, each with the types that take it."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        if value in _JSON_KINDS:
            kinds = types.REGISTRY.values()
            option["attrs"]["data-for"] = " ".join(
                kind.name for kind in kinds if RuleType.JSON_FIELD in kind.rule_types
            )
        return option


class RuleRow(Row):
    kind = forms.ChoiceField(label="Rule", choices=RuleKind.choices, widget=_RuleSelect)
    path = _code_field("Path in the JSON", 128, "data.items.0.status")
    value = _code_field("Text", 256, "exact", strip=False)
    prefix = "rule"
    setting = "content_rules"
    typed = ("path", "value")
    aliases: ClassVar = {"type": "kind", "equals": "value"}

    def item(self) -> Rule:
        kind, path, value = (self.cleaned_data[name] for name in ("kind", "path", "value"))
        if kind in _JSON_KINDS:
            return Rule(RuleType.JSON_FIELD, path=path or None, equals=value if kind == RuleKind.JSON_EQUALS else None)
        return Rule(RuleType.TEXT_ABSENT if kind == RuleKind.ABSENT else RuleType.TEXT_CONTAINS, value or None)

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
    secret_fields = ("value",)
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
            self.add_error("value", "Stored values are hidden. Enter a new value to replace it.")

    def item(self) -> Header:
        given = self.cleaned_data
        return Header(given["name"], given["value"], given["type"] or None)

    @staticmethod
    def initial_of(item: Header) -> dict[str, Any]:
        return {"name": item.name, "type": item.type}


def filled(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if any(row.cleaned_data.get(name) for name in row.typed)]


def blank_rule(config: MonitorConfig) -> dict[str, Any]:
    is_json = types.get(config.type).first_rule is RuleType.JSON_FIELD
    return {"kind": RuleKind.JSON_EQUALS if is_json else RuleKind.CONTAINS}
