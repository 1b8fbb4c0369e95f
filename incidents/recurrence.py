"""When a maintenance window is active: once, or repeatedly by a rule of RFC 5545 in a time zone. Pure.

A rule recurs at the same local time, so dateutil expands it in local time, and each start is then converted to an
instant. A start that the clock skips is moved by as much as the clock; of two equal local times the first counts.
Every occurrence lasts as long as the first one, in elapsed time.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from core.errors import ValidationFailed
from core.zones import TIME_ZONES

MAX_LENGTH = timedelta(days=30)
MAX_YEARS = 10
HORIZON = timedelta(days=3653)  # ten years of at most one occurrence a day

# dateutil searches until the end of year 9999 and cannot stop earlier (`until` is compared with what it finds), so a
# rule that never matches would take seconds. Rules are therefore expanded as near to that end as an equal calendar is:
# less than 28 years before _LAST_START, or, over a century without a leap day, less than 400.
_LAST_START = 9999 - MAX_YEARS - 1

_SIGNED = r"[+-]?"
_MONTH_DAY = r"(?:[12]\d|3[01]|0?[1-9])"
_WEEKDAY = r"(?:MO|TU|WE|TH|FR|SA|SU)"
_VALUES = {
    "FREQ": r"DAILY|WEEKLY|MONTHLY|YEARLY",
    "INTERVAL": r"[1-9]\d{0,2}",
    "COUNT": r"[1-9]\d{0,3}",
    "UNTIL": r"\d{8}(?:T\d{6}Z)?",
    "BYMONTH": r"(?:0?[1-9]|1[0-2])",
    "BYMONTHDAY": _SIGNED + _MONTH_DAY,
    "BYDAY": rf"(?:{_SIGNED}(?:[1-4]\d|5[0-3]|0?[1-9]))?{_WEEKDAY}",
    "BYSETPOS": _SIGNED + r"(?:36[0-6]|3[0-5]\d|[12]\d\d|[1-9]\d|[1-9])",
    "WKST": _WEEKDAY,
}
_LISTS = ("BYMONTH", "BYMONTHDAY", "BYDAY", "BYSETPOS")


class Occurrence(NamedTuple):
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """`starts_at` to `ends_at` is the first occurrence. `rrule` has no DTSTART; empty means once."""

    starts_at: datetime
    ends_at: datetime
    time_zone: str
    rrule: str = ""

    def occurrences(self, *, after: datetime | None = None) -> Iterator[Occurrence]:
        """Return the occurrences that end after `after` (None: all), in order.

        A rule without an end is expanded for ten years from `after`, or else from its start. Raises ValidationFailed
        if the rule is invalid.
        """
        length = self.ends_at - self.starts_at
        if after is None or self.ends_at > after:
            yield Occurrence(self.starts_at, self.ends_at)
        if not self.rrule:
            return
        earliest = self.starts_at if after is None else max(self.starts_at, after - length)
        parts = _parts_of(self.rrule)
        first, last = self._local_start(), self._until(parts, earliest)
        for local in self._local_starts(earliest):
            start = self._instant(local)
            if start > last:
                return
            # The first is known, and may be the second of two equal local times.
            if local > first and (after is None or start + length > after):
                yield Occurrence(start, start + length)

    def occurrence_at_or_after(self, now: datetime) -> Occurrence | None:
        """Return the active or next occurrence at `now`, or None if there are no more."""
        return next(self.occurrences(after=now), None)

    def _local_start(self) -> datetime:
        return self._local(self.starts_at)

    def _local_starts(self, earliest: datetime) -> Iterator[datetime]:
        """Return local start times, without UNTIL: from shortly before `earliest` if the rule need not be counted.
        dateutil drops fractions of a second."""
        first = self._local_start()
        rest = timedelta(microseconds=first.microsecond)
        parts = {name: value for name, value in _parts_of(self.rrule).items() if name != "UNTIL"}
        begin = first if "COUNT" in parts else _skip_intervals(first, parts, self._local(earliest) - timedelta(days=1))
        shift = _years_to_shift(begin.year)
        text = ";".join(f"{name}={value}" for name, value in parts.items())
        for found in rrulestr(text, dtstart=begin.replace(year=begin.year + shift)):
            yield found.replace(year=found.year - shift) + rest

    def _until(self, parts: dict[str, str], earliest: datetime) -> datetime:
        """Return the last moment at which an occurrence may start; a UNTIL without time includes its whole day.
        Without UNTIL: ten years after `earliest`."""
        text = parts.get("UNTIL")
        if text is None:
            return earliest + HORIZON
        try:
            if text.endswith("Z"):
                return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            next_day = datetime.strptime(text, "%Y%m%d") + timedelta(days=1)  # noqa: DTZ007  (a local date)
            return self._instant(next_day) - timedelta(microseconds=1)
        except (ValueError, OverflowError):
            raise _invalid(f"UNTIL={text} is not a valid date.") from None

    def _local(self, instant: datetime) -> datetime:
        return instant.astimezone(ZoneInfo(self.time_zone)).replace(tzinfo=None, fold=0)

    def _instant(self, local: datetime) -> datetime:
        """Convert a local time to an instant. With fold=0 zoneinfo uses the offset before the clock change: that is
        the first of two equal times, and moves a skipped time by the length of the gap (dateutil's
        `resolve_imaginary`)."""
        return local.replace(tzinfo=ZoneInfo(self.time_zone), fold=0).astimezone(UTC)


def _skip_intervals(first: datetime, parts: dict[str, str], earliest: datetime) -> datetime:
    """Return a start from which the rule has the same times, at least one interval before `earliest`, or else `first`.

    Adds to `parts` what they take from `first`. All but the first interval from there is complete.
    """
    interval = int(parts.get("INTERVAL", 1))
    if parts["FREQ"] in ("DAILY", "WEEKLY"):
        step = interval * (7 if parts["FREQ"] == "WEEKLY" else 1)
        return first + timedelta(days=max(0, (earliest - first).days // step - 1) * step)
    step = interval * (12 if parts["FREQ"] == "YEARLY" else 1)
    months = (earliest.year - first.year) * 12 + earliest.month - first.month
    skipped = max(0, months // step - 1) * step
    if not skipped:
        return first
    if not parts.keys() & {"BYDAY", "BYMONTHDAY"}:
        parts["BYMONTHDAY"] = str(first.day)
        if parts["FREQ"] == "YEARLY":
            parts.setdefault("BYMONTH", str(first.month))
    year, month = divmod(first.year * 12 + first.month - 1 + skipped, 12)
    return first.replace(year=year, month=month + 1, day=1)  # the day that every month has


def _years_to_shift(year: int) -> int:
    """Return the years to the last start whose years have the calendars of those from `year` on."""
    calendars = _calendars(year)
    return next(last - year for last in range(_LAST_START, _LAST_START - 400, -1) if _calendars(last) == calendars)


@lru_cache(maxsize=512)
def _calendars(year: int) -> tuple[tuple[int, bool], ...]:
    return tuple((date(each, 1, 1).weekday(), isleap(each)) for each in range(year, year + MAX_YEARS + 2))


def _invalid(reason: str) -> ValidationFailed:
    return ValidationFailed(reason, field="rrule")


def check(schedule: Schedule, *, now: datetime) -> Occurrence:
    """Return the active or next occurrence. Raises ValidationFailed if this cannot be a window's schedule now."""
    if schedule.time_zone not in TIME_ZONES:  # opening the given name would read a path on our disk
        raise ValidationFailed("is not a name of the IANA time zone database.", field="time_zone")
    if schedule.ends_at <= schedule.starts_at:
        raise ValidationFailed("must be after starts_at.", field="ends_at")
    if schedule.ends_at - schedule.starts_at > MAX_LENGTH:
        raise ValidationFailed(
            f"is more than {MAX_LENGTH.days} days after starts_at; pause the monitors instead.", field="ends_at"
        )
    if schedule.starts_at > now + HORIZON:
        raise ValidationFailed(f"is more than {MAX_YEARS} years ahead.", field="starts_at")
    if schedule.rrule:
        _check_rule(schedule)
    occurrence = schedule.occurrence_at_or_after(now)
    if occurrence is None and schedule.rrule:
        raise _invalid("the last occurrence is over.")
    if occurrence is None:
        raise ValidationFailed("is in the past.", field="ends_at")
    return occurrence


def _check_rule(schedule: Schedule) -> None:
    parts = _parts_of(schedule.rrule)
    last = schedule.starts_at + HORIZON
    until = schedule._until(parts, schedule.starts_at)
    if until > last:
        raise _invalid(f"UNTIL is more than {MAX_YEARS} years after starts_at; omit it for a rule that does not end.")
    if until < schedule.starts_at:
        raise _invalid("UNTIL is before starts_at.")
    first = next(schedule._local_starts(schedule.starts_at), None)
    if first is None:
        raise _invalid("has no occurrence.")
    if first != schedule._local_start():
        raise ValidationFailed(
            f"does not match rrule, whose first time is {first:%Y-%m-%d %H:%M} in {schedule.time_zone}.",
            field="starts_at",
        )
    starts = takewhile(lambda local: schedule._instant(local) <= last, schedule._local_starts(schedule.starts_at))
    if "COUNT" in parts and sum(1 for _ in starts) < int(parts["COUNT"]):
        raise _invalid(f"lasts more than {MAX_YEARS} years; use a smaller COUNT, or none.")
    recurs = False
    for before, after in pairwise(schedule.occurrences()):
        recurs = True
        if after.starts_at < before.ends_at:
            raise _invalid(
                f"the occurrence of {after.starts_at:%Y-%m-%d %H:%M} UTC begins before the previous one ends."
            )
    if not (recurs or parts.keys() & {"COUNT", "UNTIL"}):
        raise _invalid(f"does not recur within {MAX_YEARS} years.")


def _parts_of(rrule: str) -> dict[str, str]:
    """Return the parts of a rule in upper case, checked against RFC 5545."""
    parts: dict[str, str] = {}
    for part in rrule.upper().split(";"):
        name, equals, value = part.partition("=")
        if name in parts:
            raise _invalid(f"{name} is repeated.")
        _check_part(name, value if equals else "")
        parts[name] = value
    frequency = parts.get("FREQ")
    if frequency is None:
        raise _invalid("FREQ is missing.")
    if {"COUNT", "UNTIL"} <= parts.keys():
        raise _invalid("COUNT and UNTIL cannot be combined.")
    if frequency == "WEEKLY" and "BYMONTHDAY" in parts:
        raise _invalid("BYMONTHDAY cannot be combined with FREQ=WEEKLY.")
    if "BYSETPOS" in parts and not parts.keys() & {"BYMONTH", "BYMONTHDAY", "BYDAY"}:
        raise _invalid("BYSETPOS requires BYMONTH, BYMONTHDAY or BYDAY.")
    _check_days(frequency, parts)
    return parts


def _check_days(frequency: str, parts: dict[str, str]) -> None:
    """Check numbered weekdays, as in 2MO: dateutil ignores some of them and fails on others."""
    numbers = [day[:-2] for day in parts.get("BYDAY", "").split(",")]
    if not any(numbers):
        return
    if frequency in ("DAILY", "WEEKLY"):
        raise _invalid(f"numbers in BYDAY cannot be combined with FREQ={frequency}.")
    if not all(numbers):
        raise _invalid("number all days of BYDAY, or none.")
    if (frequency == "MONTHLY" or "BYMONTH" in parts) and max(abs(int(number)) for number in numbers) > 5:
        raise _invalid("numbers in BYDAY go up to 5: no month has a sixth of a weekday.")


def _check_part(name: str, value: str) -> None:
    pattern = _VALUES.get(name)
    if name == "FREQ" and value in ("SECONDLY", "MINUTELY", "HOURLY"):
        raise _invalid(f"FREQ={value} is not supported; use DAILY, WEEKLY, MONTHLY or YEARLY.")
    if name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        raise _invalid(f"{name} is not supported: the time of day is that of starts_at.")
    if pattern is None:
        shown = re.match(r"[A-Z-]{0,20}", name)
        raise _invalid(
            f"{shown[0] if shown and shown[0] else 'something'} is not supported; write parts such as"
            " FREQ=WEEKLY;BYDAY=MO;UNTIL=20271231T235959Z."
        )
    values = value.split(",") if name in _LISTS else [value]
    if not all(re.fullmatch(pattern, one, re.ASCII) for one in values):
        hint = "; write 20271231T235959Z or 20271231" if name == "UNTIL" else ""
        raise _invalid(f"the value of {name} cannot be read{hint}.")
