"""Layers and policies in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.text import get_text_list

from core.text import counted

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMED = {(1, 2, 3, 4, 5): "Monday to Friday", (6, 7): "Saturday and Sunday", (1, 2, 3, 4, 5, 6, 7): "every day"}


def turn(every: Mapping[str, Any]) -> str:
    """Return `every week` or `every 12 hours`."""
    unit, count = every["unit"], every["count"]
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def hours(stored: Iterable[Mapping[str, Any]]) -> str:
    """Return `Monday to Friday 09:00 to 17:00; Sunday 10:00 to 12:00`, empty for always."""
    return "; ".join(f"{_days(row['days'])} {row['from']} to {row['to']}" for row in stored)


def _days(numbers: Iterable[int]) -> str:
    days = tuple(sorted(numbers))
    return _NAMED.get(days) or get_text_list([DAYS[day - 1] for day in days], "and")


def wait(number: int, after_min: int, *, is_second_wait: bool) -> str:
    """Return when a step runs: `At once`, `After 10 minutes`, `After another 5 minutes`. `number` is 0 for the first.

    `is_second_wait`: an earlier step waits too, so that the minutes are not those since the outage.
    """
    if not after_min:
        return "At once" if number == 0 else "At the same time"
    return f"After {'another ' if is_second_wait else ''}{counted(after_min, 'minute')}"


def ending(repeat: int, acknowledge_timeout_min: int) -> str:
    """Return what happens after the last step, and after an acknowledgement."""
    words = {0: "", 1: "Repeated once.", 2: "Repeated twice."}.get(repeat, f"Repeated {repeat} times.")
    if acknowledge_timeout_min:
        after = counted(acknowledge_timeout_min, "minute")
        words = f"{words} Starts again if it is not resolved {after} after it was acknowledged.".strip()
    return words
