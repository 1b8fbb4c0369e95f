"""Hours of the week as text, one line for each: `Mon-Fri 09:00-17:00`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from core.hours import MAX_HOURS
from dashboard.forms import MultilineField

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EXAMPLE = "Mon-Fri 09:00-17:00"
_TIMES = re.compile(r"([0-9]{1,2}:[0-9]{2})-([0-9]{1,2}:[0-9]{2})")
_WRONG = f"write days and times, for example {EXAMPLE}."
_EVERY_DAY = {"daily", "every day", "always", ""}


class HoursField(MultilineField):
    """Hours as the API has them: `[{days, from, to}]`."""

    def __init__(self, *, label: str) -> None:
        text = (
            f"When alerts are sent, one line for each span, for example {EXAMPLE} or Sat, Sun 10:00-14:00. "
            "A span that ends at or before its start ends on the next day. Empty: always."
        )
        widget = forms.Textarea(attrs={"rows": 2, "placeholder": EXAMPLE, "spellcheck": "false"})
        super().__init__(label=label, help_text=text, widget=widget, required=False, empty_value="")

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in super().clean(value).splitlines()]
        return [read_line(line, number) for number, line in enumerate(lines, start=1) if line]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(write_hours(value)) if isinstance(value, list | tuple) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


def read_line(line: str, number: int) -> dict[str, Any]:
    """Return the hours of a line. Raises ValidationError."""
    if number > MAX_HOURS:
        raise ValidationError(f"At most {MAX_HOURS} lines.")
    text = " ".join(line.replace("\u2013", "-").split()).replace(" to ", "-").replace(" - ", "-")
    days_text, _, times = text.rpartition(" ")
    found, days = _TIMES.fullmatch(times), _read_days(days_text)
    if found is None or days is None:
        raise ValidationError(f"Line {number}: {_WRONG}")
    start, end = (f"{text:0>5}" for text in found.groups())
    if max(start, end) > "23:59" or start[3:] > "59" or end[3:] > "59":
        raise ValidationError(f"Line {number}: times are from 00:00 to 23:59.")
    return {"days": days, "from": start, "to": end}


def _read_days(text: str) -> list[int] | None:
    """Return the numbers of days like `Mon-Fri, Sun`, or None."""
    text = text.strip().lower()
    if text in _EVERY_DAY:
        return list(range(1, 8))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        ends = [_number_of(first), _number_of(last or first)]
        if None in ends:
            return None
        start, end = (number or 0 for number in ends)
        days |= {(start + offset - 1) % 7 + 1 for offset in range((end - start) % 7 + 1)}
    return sorted(days)


def _number_of(day: str) -> int | None:
    """Return 1 for Mon or Monday."""
    short = day.strip()[:3].title()
    return DAYS.index(short) + 1 if short in DAYS else None


def write_hours(hours: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each of the hours."""
    return [f"{_write_days(row['days'])} {row['from']}-{row['to']}" for row in hours]


def _write_days(days: Sequence[int]) -> str:
    if len(days) == len(DAYS):
        return "Daily"
    runs: list[list[str]] = []
    for before, day in zip([-1, *days], days, strict=False):
        if day != before + 1:
            runs.append([])
        runs[-1].append(DAYS[day - 1])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)
