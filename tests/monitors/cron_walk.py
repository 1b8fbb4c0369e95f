"""The times of a cron schedule, found by stepping through the minutes. Shares no code with `monitors.cron`.

Debian's rule: a fixed time that the clock skips runs right after the gap, and a repeated one runs once. A star in
minutes or hours means each minute that matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
_LONGEST_REPEAT = 2 * DAY
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@cache
def zone_of(name: str) -> ZoneInfo:
    """Read the package tzdata: the machine's own files may be older."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def walk(expression: str, zone: str, start: datetime, end: datetime, *, step: timedelta = MINUTE) -> list[datetime]:
    """Return the times in (start, end]. `step` must hit each local minute: 30 s where offsets have seconds."""
    return [at for at in _due(expression, zone_of(zone), start - _LONGEST_REPEAT, end, step) if at > start]


def _due(expression: str, zone: ZoneInfo, begin: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    minutes, hours, *_ = expression.split()
    follows_real_time = minutes[0] == "*" or hours[0] == "*"
    moment = begin.replace(second=0, microsecond=0)
    seen = moment.astimezone(zone).replace(tzinfo=None) - MINUTE
    missed = False
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if follows_real_time:
            if wall.second == 0 and _matches(expression, wall):
                yield moment
        elif wall > seen:
            skipped = seen + MINUTE
            while skipped < wall:
                missed = missed or (skipped.second == 0 and _matches(expression, skipped))
                skipped += step
            if wall.second == 0:
                if missed or _matches(expression, wall):
                    yield moment
                missed = False
                seen = wall
        moment += step


def _matches(expression: str, wall: datetime) -> bool:
    minutes, hours, days, months, weekdays = _parsed(expression)
    if not (wall.minute in minutes and wall.hour in hours and wall.month in months):
        return False
    by_day, by_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
    _, _, day, _, weekday = expression.split()
    return by_day and by_weekday if day[0] == "*" or weekday[0] == "*" else by_day or by_weekday


@cache
def _parsed(expression: str) -> tuple[frozenset[int], ...]:
    minute, hour, day, month, weekday = expression.upper().split()
    return (
        _values(minute, 0, 59),
        _values(hour, 0, 23),
        _values(day, 1, 31),
        _values(month, 1, 12, ["", *_MONTHS]),
        frozenset(number % 7 for number in _values(weekday, 0, 7, _DAYS)),
    )


def _values(field: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            numbers = range(low, high + 1)
        else:
            start = names.index(first) if names and first in names else int(first)
            end = (names.index(last) if names and last in names else int(last)) if last else start
            numbers = range(start, (high if step and not last else end) + 1)
        found.update(numbers[:: int(step or 1)])
    return frozenset(found)
