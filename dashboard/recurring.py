"""The recurrences that the form offers, and their RFC 5545 rules. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

from django.utils.text import get_text_list

DAYS = {
    "MO": "Monday",
    "TU": "Tuesday",
    "WE": "Wednesday",
    "TH": "Thursday",
    "FR": "Friday",
    "SA": "Saturday",
    "SU": "Sunday",
}
FREQUENCIES = {"daily": "DAILY", "weekly": "WEEKLY", "monthly": "MONTHLY"}
_PERIODS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence. `repeats` is one of FREQUENCIES; `days` are for weekly ones. `until` is the last local day."""

    repeats: str
    until: date
    days: tuple[str, ...] = ()

    def rrule(self) -> str:
        days = f"BYDAY={','.join(day for day in DAYS if day in self.days)};" if self.days else ""
        return f"FREQ={FREQUENCIES[self.repeats]};{days}UNTIL={self.until:%Y%m%d}"


def read(rrule: str) -> Recurrence | None:
    """Parse a rule. Return None if the form cannot show it."""
    found = re.fullmatch(r"FREQ=(DAILY|WEEKLY|MONTHLY);(?:BYDAY=([A-Z,]+);)?UNTIL=(\d{8})", rrule.upper(), re.ASCII)
    if found is None:
        return None
    repeats = found[1].lower()
    days = tuple(found[2].split(",")) if found[2] else ()
    if any(day not in DAYS for day in days) or (days and repeats != "weekly"):
        return None
    try:
        return Recurrence(repeats, datetime.strptime(found[3], "%Y%m%d").date(), days)  # noqa: DTZ007  (a day)
    except ValueError:
        return None


def in_words(rrule: str) -> str:
    """Describe a rule: `every week on Monday and Friday until 31 Dec 2027`, or `custom rule` if it is more complex."""
    parts = dict(part.split("=", 1) for part in rrule.upper().split(";") if "=" in part)
    days = [DAYS.get(day) for day in parts.get("BYDAY", "").split(",") if day]
    if not rrule:
        return "once"
    if parts.keys() - {"FREQ", "BYDAY", "UNTIL", "COUNT"} or None in days or parts.get("FREQ") not in _PERIODS:
        return "custom rule"
    words = f"every {_PERIODS[parts['FREQ']]}"
    if days:
        words += f" on {get_text_list([day for day in days if day], 'and')}"
    if "COUNT" in parts:
        words += f", {parts['COUNT']} times"
    if "UNTIL" in parts:
        words += f" until {_day(parts['UNTIL'])}"
    return words


def _day(until: str) -> str:
    try:
        return f"{datetime.strptime(until[:8], '%Y%m%d'):%-d %b %Y}"  # noqa: DTZ007  (a day)
    except ValueError:
        return until
