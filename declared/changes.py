"""What an apply does, told field by field, with no secret in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from declared.problems import Problem, printable
from declared.secrets import Secret
from declared.things import Shape

_SIGNS = {"create": "+", "update": "~", "delete": "-"}
LONGEST = 100


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`before` and `after` are words for people; None where there is nothing."""

    field: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before == self.after:  # secrets look alike
            return f"{self.field}: {self.after}, another than before"
        return f"{self.field}: {_or_none(self.before)} → {_or_none(self.after)}"


@dataclass(frozen=True, slots=True)
class Change:
    """`line` is that of the file, of what it names; `fields` those that differ."""

    action: str
    noun: str
    name: str
    project: str | None = None
    line: int | None = None
    fields: tuple[FieldChange, ...] = ()

    def lines(self) -> list[str]:
        where = f" in {self.project}" if self.project else ""
        head = f"{_SIGNS[self.action]} {self.noun} {self.name!r}{where}"
        return [printable(line) for line in (head, *(f"    {change}" for change in self.fields))]

    def as_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "kind": self.noun,
            "name": self.name,
            "project": self.project,
            "line": self.line,
            "fields": [
                {"field": change.field, "before": change.before, "after": change.after}
                for change in self.fields
            ],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What was done, or would be. `unmentioned` is what the file is in charge of and does not name, where it stays."""

    changes: Sequence[Change]
    notes: Sequence[Problem] = field(default_factory=list)
    unmentioned: int = 0
    first_checks: int = 0

    def count(self, action: str) -> int:
        return sum(change.action == action for change in self.changes)


def compared(before: Shape, after: Shape, names: Sequence[str]) -> tuple[FieldChange, ...]:
    found: list[FieldChange] = []
    for name in names:
        if name == "request_headers":
            found += _headers(before[name], after[name])
        else:
            found.append(FieldChange(name, word(before[name]), word(after[name])))
    return tuple(found)


def _headers(before: Sequence[Shape], after: Sequence[Shape]) -> list[FieldChange]:
    """By header: their values are secrets, and which one changes has to be seen."""
    old, new = ({one["name"]: one for one in headers} for headers in (before, after))
    found = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            label = f"request_headers[{name}]"
            found.append(FieldChange(label, _header(old.get(name)), _header(new.get(name))))
    return found or [FieldChange("request_headers", ", ".join(old), ", ".join(new))]  # another order


def _header(header: Shape | None) -> str | None:
    if header is None:
        return None
    return word(header["value"]) if "type" not in header else f"{header['type']} {word(header['value'])}"


def word(value: Any) -> str | None:
    """A value of a shape in words."""
    if value is None or value == "" or value == []:
        return None
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    text = "; ".join(word(one) or "" for one in value) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _or_none(text: str | None) -> str:
    return "none" if text is None else text
