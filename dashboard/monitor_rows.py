"""The rows of a monitor's form: content rules and request headers, up to the maximum of each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec
from django import forms
from django.db.models import TextChoices

from checks.probes.http.spec import RuleType
from dashboard.fields import PlainRenderer
from monitors.types.http import HEADER_TYPES, Header, Rule

_CODE = {"autocomplete": "off", "spellcheck": "false", "class": "code"}


class Row(forms.Form):
    """A row. Blank rows are ignored; the others are sent in their order."""

    default_renderer = PlainRenderer
    names: ClassVar[dict[str, str]]
    """Field names of the row by the API's names, to assign errors."""

    @property
    def is_blank(self) -> bool:
        raise NotImplementedError

    def as_body(self) -> dict[str, Any]:
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
    path = forms.CharField(
        label="Path in the JSON",
        max_length=128,
        required=False,
        widget=forms.TextInput(attrs=_CODE | {"placeholder": "data.items.0.status"}),
    )
    value = forms.CharField(
        label="Text",
        max_length=256,
        required=False,
        strip=False,
        widget=forms.TextInput(attrs=_CODE | {"placeholder": "to the letter"}),
    )
    names = {"type": "kind", "path": "path", "value": "value", "equals": "value"}  # noqa: RUF012

    @property
    def is_blank(self) -> bool:
        return not (self.cleaned_data.get("path") or self.cleaned_data.get("value"))

    def as_body(self) -> dict[str, Any]:
        path, value = self.cleaned_data["path"], self.cleaned_data["value"]
        match self.cleaned_data["kind"]:
            case RuleKind.JSON_EXISTS:
                rule = Rule(RuleType.JSON_FIELD, path=path or None)
            case RuleKind.JSON_EQUALS:
                rule = Rule(RuleType.JSON_FIELD, path=path or None, equals=value)
            case RuleKind.ABSENT:
                rule = Rule(RuleType.TEXT_ABSENT, value or None)
            case _:
                rule = Rule(RuleType.TEXT_CONTAINS, value or None)
        body: dict[str, Any] = msgspec.to_builtins(rule)
        return body


def rule_initial(rule: Rule) -> dict[str, Any]:
    if rule.type is not RuleType.JSON_FIELD:
        return {"kind": _TEXT_KINDS[rule.type], "value": rule.value}
    kind = RuleKind.JSON_EXISTS if rule.equals is None else RuleKind.JSON_EQUALS
    return {"kind": kind, "path": rule.path, "value": rule.equals}


class HeaderRow(Row):
    """A request header. Values are write-only: `stored` headers keep their value if none is typed."""

    name = forms.CharField(
        label="Name",
        max_length=256,
        required=False,
        widget=forms.TextInput(attrs=_CODE | {"placeholder": "Authorization"}),
    )
    value = forms.CharField(
        label="Value",
        max_length=4096,
        required=False,
        widget=forms.TextInput(attrs=_CODE | {"placeholder": "Bearer …"}),
    )
    type = forms.ChoiceField(
        label="Shown as",
        required=False,
        choices=[
            ("", "Header"),
            *zip(HEADER_TYPES, ("Bearer token", "API key", "Custom"), strict=True),
        ],
    )
    names = {"name": "name", "value": "value", "type": "type"}  # noqa: RUF012

    def __init__(self, *args: Any, stored: Collection[Header] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored = {header.name.lower(): header for header in stored}
        if self.is_stored:
            dropped = self._stored[self._name].dropped
            said = "enter it again" if dropped else "stored; leave empty to keep"
            self.fields["value"].widget.attrs["placeholder"] = said

    @property
    def _name(self) -> str:
        return str(self["name"].value() or "").strip().lower()

    @property
    def is_stored(self) -> bool:
        return self._name in self._stored

    @property
    def is_blank(self) -> bool:
        return not (self.cleaned_data.get("name") or self.cleaned_data.get("value"))

    def clean(self) -> None:
        name, value = self.cleaned_data.get("name"), self.cleaned_data.get("value")
        if value and name == "":
            self.add_error("name", "Name the header that has this value.")
        if name and value == "" and not self.is_stored:
            self.add_error("value", "Type the value: one that is stored is neither shown nor copied.")

    def as_body(self) -> dict[str, Any]:
        given = self.cleaned_data
        body: dict[str, Any] = msgspec.to_builtins(Header(given["name"], given["value"], given["type"] or None))
        return body


def header_initial(header: Header) -> dict[str, Any]:
    return {"name": header.name, "type": header.type}
