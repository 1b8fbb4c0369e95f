"""The changes that applying a manifest makes, field by field, without secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pulsekeeper.manifest.problems import Problem, printable

_SIGNS = {"create": "+", "update": "~", "delete": "-"}
ACTIONS = tuple(_SIGNS)
MAX_LENGTH = 100
MAX_BODY = 1024 * 1024
"""Bytes of a request to apply or import."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`before` and `after` are texts for people, or None."""

    field: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before == self.after:  # two secrets
            return f"{self.field}: {self.after}, changed"
        before, after = ("none" if text is None else text for text in (self.before, self.after))
        return f"{self.field}: {before} → {after}"


@dataclass(frozen=True, slots=True)
class Change:
    """`path` and `line` are those of the entry in the file, `fields` are those that differ."""

    action: str
    kind: str
    name: str
    project: str | None = None
    line: int | None = None
    fields: tuple[FieldChange, ...] = ()
    path: str | None = None

    def lines(self) -> list[str]:
        where = f" in {self.project}" if self.project else ""
        head = f"{_SIGNS[self.action]} {self.kind} {self.name!r}{where}"
        return [printable(line) for line in (head, *(f"    {change}" for change in self.fields))]


@dataclass(frozen=True, slots=True)
class Report:
    """The changes that were made, or would be in a dry run. `unmentioned` counts what --prune would delete."""

    changes: Sequence[Change]
    notes: Sequence[Problem] = field(default_factory=list)
    unmentioned: int = 0
    first_checks: int = 0
    applied: bool = True

    created = property(lambda self: self._count("create"))
    changed = property(lambda self: self._count("update"))
    deleted = property(lambda self: self._count("delete"))

    def _count(self, action: str) -> int:
        return sum(change.action == action for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        numbers = ("created", "changed", "deleted", "unmentioned", "first_checks")
        return {
            "applied": self.applied,
            **{name: getattr(self, name) for name in numbers},
            "changes": [asdict(change) for change in self.changes],
            "notes": [note.as_json() for note in self.notes],
        }


def compare_fields(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str]
) -> tuple[FieldChange, ...]:
    """Return the differences in these fields. If a value has parts, return only the parts that differ."""
    found: list[FieldChange] = []
    for name in names:
        same = type(before[name]) is type(after[name])  # "all" and a list of monitors have no parts in common
        old, new = (_parts(values[name]) if same else {} for values in (before, after))
        parts = [
            FieldChange(f"{name}[{part}]", old.get(part, (None, None))[0], new.get(part, (None, None))[0])
            for part in dict.fromkeys([*old, *new])
            if old.get(part) != new.get(part)
        ]
        # The value has no parts, or the same ones in another order.
        found += parts or [FieldChange(name, _word(before[name]), _word(after[name]))]
    return tuple(found)


def _parts(value: Any) -> dict[str, tuple[str | None, Any]]:
    """Return the text and the compared value of each part, by its name.

    Texts of secrets are equal, but their values may differ.
    """
    if isinstance(value, list):
        return {name: part for one in value for name, part in _parts(one).items()}
    if isinstance(value, dict) and "name" in value:  # a header
        return {value["name"]: (" ".join(filter(None, [value.get("type"), str(value["value"])])), value)}
    if hasattr(value, "parts"):
        return {name: (text, text) for name, text in value.parts().items()}
    return {}


def _word(value: Any) -> str | None:
    """Return a value as text."""
    if value is None or value == "" or value == []:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    text = "; ".join(_word(one) or "" for one in value) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
