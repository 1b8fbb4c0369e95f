"""Cron schedules: five fields, read as Debian's cron does, in a time zone. Pure, and the only user of cronsim.

Time zones are those of the locked package `tzdata`, not those of the machine: all processes compute the same times, and
`TZDATA_VERSION` says with which data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import metadata, resources
from itertools import islice, pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_EXPRESSION = 100
TZDATA_VERSION = metadata.version("tzdata")
TIME_ZONES = frozenset(resources.files("tzdata").joinpath("zones").read_text().split())
CHANGES_WITHIN_HOURS = frozenset({"Australia/LHI", "Australia/Lord_Howe", "NZ-CHAT", "Pacific/Chatham"})
"""Zones whose clocks do not change at a full hour. There cronsim goes back to it, and may never end."""

_VALUE = r"(?:\d{1,4}|[a-z]{3})"
_TERM = rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/\d{{1,4}})?"
_FIELD = re.compile(rf"{_TERM}(?:,{_TERM})*", re.ASCII | re.IGNORECASE)
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_HOW = f"Write five fields ({', '.join(_FIELDS)}), for example 30 3 * * MON-FRI."
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim takes a local time without a zone
_DAY = timedelta(days=1)
_MINUTES_OF_DAY = 24 * 60
_LEAP_CYCLE_DAYS = 8 * 366


class BadScheduleError(ValueError):
    """A schedule that is not accepted. `setting` is the wrong part of it."""

    def __init__(self, reason: str, *, setting: Literal["schedule", "timezone"] = "schedule") -> None:
        self.setting = setting
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression in a time zone. Raises BadScheduleError if it is not accepted.

    When the clocks change, fixed times follow Debian: those that are skipped run once right after the gap, and those
    that come twice run once. `*` in hours or minutes follows real time.
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if len(self.expression) > MAX_EXPRESSION:
            raise BadScheduleError(f"must be at most {MAX_EXPRESSION} characters.")
        fields = self.expression.split()
        if len(fields) != len(_FIELDS):
            raise BadScheduleError(f"has {len(fields)} field{'' if len(fields) == 1 else 's'}. {_HOW}")
        for name, field in zip(_FIELDS, fields, strict=True):
            if not _FIELD.fullmatch(field):
                raise BadScheduleError(f"the {name} must be numbers, names, ranges, steps and lists of them. {_HOW}")
        try:
            simulation = CronSim(self.expression, _ANY_DAY)
        except CronSimError as error:
            wrong = str(error).removeprefix("Bad ").replace("-", " ")
            raise BadScheduleError(f"the {wrong} is out of range or never occurs. {_HOW}") from None
        if next(simulation, None) is None:
            raise BadScheduleError(f"never comes due. {_HOW}")
        if self.timezone not in TIME_ZONES:
            raise BadScheduleError("is not a time zone. Write one as Europe/Berlin or UTC.", setting="timezone")

    def times_after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after `moment` in UTC, in order. They end with the calendar, in the year 9999."""
        minutes, hours, *_ = self.expression.split()
        has_star = minutes.startswith("*") or hours.startswith("*")
        try:
            if has_star and self.timezone in CHANGES_WITHIN_HOURS:
                yield from self._times_between_changes(moment)
            else:
                yield from self._simulated_times(moment)
        except (OverflowError, ValueError):
            return

    def _simulated_times(self, moment: datetime) -> Iterator[datetime]:
        latest = moment
        for found in CronSim(self.expression, self.local(moment)):
            at = found.astimezone(UTC)
            # In an hour that comes twice, the simulation starts with times of its first pass.
            if at > latest:
                latest = at
                yield at

    def _times_between_changes(self, moment: datetime) -> Iterator[datetime]:
        """Simulate the time between two clock changes without a zone, which cronsim might not end in another way."""
        before, offset = moment.astimezone(UTC), self._offset(moment)
        change: datetime | None = moment
        while change is not None:
            for found in CronSim(self.expression, (before + offset).replace(tzinfo=None)):
                at = (found - offset).replace(tzinfo=UTC)
                change = self._clock_change(before, at, offset)
                if change is not None:
                    # A run may be due at the change itself.
                    before, offset = change - timedelta(seconds=1), self._offset(change)
                    break
                yield at
                before = at
            else:
                return

    def _clock_change(self, start: datetime, end: datetime, offset: timedelta) -> datetime | None:
        """Return the first second of (start, end] with another UTC offset, or None. `offset` is that after `start`."""
        low = start
        while low < end:
            high = end if end - low < _DAY else low + _DAY
            if self._offset(high) != offset:
                while high - low > timedelta(seconds=1):
                    middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                return high
            low = high
        return None

    def _offset(self, moment: datetime) -> timedelta:
        offset = self.local(moment).utcoffset()
        assert offset is not None
        return offset

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """Return the next `count` times after `moment`, in UTC."""
        return list(islice(self.times_after(moment), count))

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time after `moment`, in UTC."""
        return next(self.times_after(moment))

    def local(self, moment: datetime) -> datetime:
        """Return the moment in the schedule's time zone."""
        return moment.astimezone(_zone(self.timezone))

    def in_words(self) -> str:
        """Return the expression in English, without the time zone."""
        return CronSim(self.expression, _ANY_DAY).explain()

    def least_gap(self) -> timedelta:
        """Return the shortest time between two runs, on days without a clock change."""
        return _least_gap(self.expression)


@lru_cache(maxsize=4_096)
def schedule(expression: str, timezone: str) -> Schedule:
    """Return the schedule, checked once per process. Raises BadScheduleError."""
    return Schedule(expression, timezone)


@lru_cache(maxsize=4_096)
def _least_gap(expression: str) -> timedelta:
    simulation = CronSim(expression, _ANY_DAY)
    minutes = sorted(hour * 60 + minute for hour in simulation.hours for minute in simulation.minutes)
    gaps = [later - earlier for earlier, later in pairwise(minutes)]
    days_apart = _least_days(simulation)
    if days_apart is not None:
        gaps.append(days_apart * _MINUTES_OF_DAY - minutes[-1] + minutes[0])
    return timedelta(minutes=min(gaps)) if gaps else timedelta(days=_LEAP_CYCLE_DAYS)


def _least_days(simulation: CronSim) -> int | None:
    """Return the least number of days between two that match, or None if there is one at most in eight years."""
    least = last = None
    for number in range(_ANY_DAY.toordinal(), _ANY_DAY.toordinal() + _LEAP_CYCLE_DAYS):
        day = date.fromordinal(number)
        if day.month in simulation.months and simulation.match_day(day):
            if last is not None:
                least = number - last if least is None else min(least, number - last)
                if least == 1:
                    break
            last = number
    return least


@cache
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
