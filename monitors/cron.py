"""Cron schedules: five fields, read as Debian's cron does, in a time zone. Pure, and the only user of cronsim.

cronsim parses expressions and puts them into words. The times are computed here, by loops over the calendar that end
by construction: cronsim's own do not end in zones whose clocks changed by odd steps (ADR 38).

Time zones are those of the locked package `tzdata` (`core.zones`). `TZDATA_VERSION` says with which data times are
computed.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import metadata
from itertools import islice, pairwise, takewhile
from typing import Literal

from cronsim import CronSim, CronSimError

from core.text import counted
from core.zones import TIME_ZONES, find_change, zone

MAX_EXPRESSION = 100
TZDATA_VERSION = metadata.version("tzdata")

_VALUE = r"(?:\d{1,4}|[a-z]{3})"
_TERM = rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/\d{{1,4}})?"
_FIELD = re.compile(rf"{_TERM}(?:,{_TERM})*", re.ASCII | re.IGNORECASE)
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_HOW = f"Write five fields ({', '.join(_FIELDS)}), for example 30 3 * * MON-FRI."
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim takes a local time without a zone
_ALL_CALENDARS_END = date(_ANY_DAY.year + 29, 1, 1)
"""Years have 14 calendars, which come in all their orders within 28 years."""
_MINUTES_OF_DAY = 24 * 60
_LONGEST_GAP = 8 * 366 * _MINUTES_OF_DAY


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
            raise BadScheduleError(f"has {counted(len(fields), 'field')}. {_HOW}")
        for name, field in zip(_FIELDS, fields, strict=True):
            if not _FIELD.fullmatch(field):
                raise BadScheduleError(f"the {name} must be numbers, names, ranges, steps and lists of them. {_HOW}")
        _parse(self.expression)
        if self.timezone not in TIME_ZONES:
            raise BadScheduleError("is not a time zone. Write one as Europe/Berlin or UTC.", setting="timezone")

    def times_after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after `moment` in UTC, in order. They end with the calendar, in the year 9999."""
        fields = _parse(self.expression)
        times = self._real_times if fields.follow_real_time else self._fixed_times
        try:
            yield from times(fields, moment)
        except (OverflowError, ValueError):
            return

    def _fixed_times(self, fields: _Fields, moment: datetime) -> Iterator[datetime]:
        """Yield each matching local time once: the first of two, and the end of the gap in place of all in it."""
        latest = moment
        start = gap_end = self._wall_time(moment)
        for wall in fields.wall_times(start):
            if wall < gap_end:
                continue
            at, second = self._instants(wall)
            if second < at:
                at = self._end_of_gap(second, at)
                gap_end = self._wall_time(at)
            if at > latest:
                latest = at
                yield at

    def _real_times(self, fields: _Fields, moment: datetime) -> Iterator[datetime]:
        """Yield each moment whose local time matches: both of two, and none in a gap."""
        start = self._wall_time(moment)
        first, second = self._instants(start)
        if first < second:  # times before `start` may come again
            start -= second - first
        seconds: deque[datetime] = deque()
        for wall in fields.wall_times(start):
            first, second = self._instants(wall)
            while seconds and seconds[0] < first:
                yield seconds.popleft()
            if second < first:
                continue
            if first > moment:
                yield first
            if second > first and second > moment:
                seconds.append(second)
        yield from seconds

    def _wall_time(self, moment: datetime) -> datetime:
        return self.local(moment).replace(tzinfo=None, fold=0)

    def _instants(self, wall: datetime) -> tuple[datetime, datetime]:
        """Return the two moments of a local time, equal ones if it comes once. In a gap the second is earlier."""
        local = wall.replace(tzinfo=zone(self.timezone))
        offset, other = local.utcoffset(), local.replace(fold=1).utcoffset()
        assert offset is not None
        assert other is not None
        at = wall.replace(tzinfo=UTC)
        return at - offset, at - other

    def _end_of_gap(self, low: datetime, high: datetime) -> datetime:
        """Return the first whole local minute after the change of the clock in (low, high]."""
        high = find_change(self.timezone, low, high)
        return high + timedelta(seconds=-self.local(high).second % 60)

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """Return the next `count` times after `moment`, in UTC."""
        return list(islice(self.times_after(moment), count))

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time after `moment`, in UTC."""
        return next(self.times_after(moment))

    def local(self, moment: datetime) -> datetime:
        """Return the moment in the schedule's time zone."""
        return moment.astimezone(zone(self.timezone))

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


@dataclass(frozen=True, slots=True)
class _Fields:
    """The values that match, in order. Monday is 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    needs_both_days: bool
    follow_real_time: bool

    def wall_times(self, start: datetime) -> Iterator[datetime]:
        """Yield the matching local times from `start` on, without a zone, to the end of the year 9999."""
        for day in self.dates(start.date()):
            is_first = day == start.date()
            for hour in self.hours:
                if is_first and hour < start.hour:
                    continue
                for minute in self.minutes:
                    found = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001
                    if found >= start:
                        yield found

    def dates(self, start: date) -> Iterator[date]:
        """Yield the matching days from `start` on. One follows within 40 years of any other."""
        for year in range(start.year, MAXYEAR + 1):
            for month in self.months:
                if year > start.year or month >= start.month:
                    yield from (day for day in self._dates_of(year, month) if day >= start)

    def _dates_of(self, year: int, month: int) -> Iterator[date]:
        first_weekday, length = monthrange(year, month)
        for day in self.days if self.needs_both_days else range(1, length + 1):
            on_weekday = (first_weekday + day - 1) % 7 in self.weekdays
            if day <= length and (on_weekday if self.needs_both_days else on_weekday or day in self.days):
                yield date(year, month, day)


@lru_cache(maxsize=4_096)
def _parse(expression: str) -> _Fields:
    """Return the fields of an expression of five. Raises BadScheduleError."""
    try:
        parsed = CronSim(expression, _ANY_DAY)
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ").replace("-", " ")
        raise BadScheduleError(f"the {wrong} is out of range or never occurs. {_HOW}") from None
    minutes, hours, *_ = expression.split()
    return _Fields(
        minutes=tuple(sorted(parsed.minutes)),
        hours=tuple(sorted(parsed.hours)),
        days=tuple(sorted(parsed.days)),
        months=tuple(sorted(parsed.months)),
        weekdays=tuple(sorted({(number - 1) % 7 for number in parsed.weekdays if isinstance(number, int)})),
        needs_both_days=parsed.day_and,
        follow_real_time=minutes.startswith("*") or hours.startswith("*"),
    )


@lru_cache(maxsize=4_096)
def _least_gap(expression: str) -> timedelta:
    fields = _parse(expression)
    minutes = [hour * 60 + minute for hour in fields.hours for minute in fields.minutes]
    gaps = [later - earlier for earlier, later in pairwise(minutes)]
    days_apart = _least_days(fields)
    if days_apart is not None:
        gaps.append(days_apart * _MINUTES_OF_DAY - minutes[-1] + minutes[0])
    return timedelta(minutes=min([*gaps, _LONGEST_GAP]))


def _least_days(fields: _Fields) -> int | None:
    """Return the least number of days between two that match, or None if there is one at most in 28 years."""
    least = None
    for earlier, later in pairwise(takewhile(lambda day: day < _ALL_CALENDARS_END, fields.dates(_ANY_DAY.date()))):
        days = (later - earlier).days
        least = days if least is None else min(least, days)
        if least == 1:
            break
    return least
