"""How far apart the runs of a cron schedule are at most. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import date, timedelta

from celery.schedules import ParseException, crontab_parser

_DAY_SEC = 24 * 3600
_FROM = date(2024, 1, 1)  # a leap year is among them
_DAYS = 8 * 366


class NoSuchScheduleError(Exception):
    """The text is no schedule of five fields that ever runs twice."""


def longest_gap(schedule: str) -> int:
    """Seconds between two runs of a five-field cron expression, at most. Raises NoSuchScheduleError."""
    fields = schedule.split()
    if len(fields) != 5 or len(schedule) > 200:
        raise NoSuchScheduleError("is no cron expression of five fields")
    minutes, hours, days, months, weekdays = fields
    times = sorted(
        hour * 3600 + minute * 60 for hour in _numbers(hours, 24) for minute in _numbers(minutes, 60)
    )
    runs = list(
        _days(
            _numbers(days, 31, 1),
            _numbers(months, 12, 1),
            {number % 7 for number in _numbers(weekdays, 8)},  # 7 is Sunday too
            either=not days.startswith("*") and not weekdays.startswith("*"),
        )
    )
    if len(runs) < 2:
        raise NoSuchScheduleError("never runs, or once in years")
    within = max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)
    nights = max(later - earlier for earlier, later in itertools.pairwise(runs))
    return max(within, nights * _DAY_SEC - times[-1] + times[0])


def _numbers(field: str, count: int, first: int = 0) -> set[int]:
    try:
        found = set(crontab_parser(count, first).parse(field))
    except (ParseException, ValueError):
        raise NoSuchScheduleError("is no cron expression of five fields") from None
    if not found:
        raise NoSuchScheduleError("is no cron expression of five fields")
    return found


def _days(days: set[int], months: set[int], weekdays: set[int], *, either: bool) -> Iterator[int]:
    """Numbers of the days on which it runs. Where both kinds of days are given, either will do, as in every cron."""
    for number in range(_DAYS):
        day = _FROM + timedelta(days=number)
        fits = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (any(fits) if either else all(fits)):
            yield number
