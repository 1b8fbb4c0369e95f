"""Hours of the week, read off the wall clock minute by minute. Pure.

Both passes of an hour that comes twice count. Minutes that the clock skips do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

from core.errors import ValidationFailed
from core.zones import steady_spans, wall_time

MAX_HOURS = 50
_WEEK = range(1, 8)
_DAY = 24 * 60
_MIDNIGHT = time()
_ONE_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_SEARCH = timedelta(days=35)
"""A time of the week comes each week. Where the clock skips it once, or a whole day, it comes in the next one."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


class Span(NamedTuple):
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Hours:
    """From `start` to `end`, in minutes of the day, on `days` (Monday is 1). `end` at or before `start` is the next
    day's."""

    days: frozenset[int]
    start: int
    end: int


def parse_hours(stored: Sequence[dict[str, Any]]) -> tuple[Hours, ...]:
    """Return hours as `settle_hours` returned them: `[{days, from, to}]`."""
    return tuple(Hours(frozenset(row["days"]), _minutes(row["from"]), _minutes(row["to"])) for row in stored)


def settle_hours(given: Any, field: str) -> list[dict[str, Any]]:
    """Return valid hours, to be stored: `[{days, from, to}]`. Raises ValidationFailed, which names `field`."""
    if not isinstance(given, list):
        raise ValidationFailed("must be a list of {days, from, to}.", field=field)
    if len(given) > MAX_HOURS:
        raise ValidationFailed(f"must have at most {MAX_HOURS} entries.", field=field, limit=MAX_HOURS)
    return [_settle(row, f"[{number}]", field) for number, row in enumerate(given)]


def _settle(row: Any, where: str, field: str) -> dict[str, Any]:
    if not isinstance(row, dict) or row.keys() != {"days", "from", "to"}:
        raise ValidationFailed(f"{where} must be an object with days, from and to.", field=field)
    days = row["days"]
    is_list = isinstance(days, list) and 0 < len(days) <= len(_WEEK)
    # True equals 1, and 1.0 too.
    if not is_list or not all(type(day) is int and day in _WEEK for day in days):
        raise ValidationFailed(f"{where}.days must be a list of 1 to 7 numbers from 1 (Monday) to 7.", field=field)
    for name in ("from", "to"):
        if not isinstance(row[name], str) or not _TIME.fullmatch(row[name]):
            raise ValidationFailed(f"{where}.{name} must be a time from 00:00 to 23:59, as HH:MM.", field=field)
    return {"days": sorted(set(days)), "from": row["from"], "to": row["to"]}


def _minutes(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def is_within(hours: Sequence[Hours], zone: str, at: datetime) -> bool:
    """Return whether `at` is within the hours; without hours it always is."""
    if not hours:
        return True
    wall = wall_time(zone, at)
    minute, day = wall.hour * 60 + wall.minute, wall.isoweekday()
    before = day - 1 or 7
    for each in hours:
        if each.start < each.end:
            if day in each.days and each.start <= minute < each.end:
                return True
        elif (day in each.days and minute >= each.start) or (before in each.days and minute < each.end):
            return True
    return False


def next_start(hours: Sequence[Hours], zone: str, after: datetime) -> datetime | None:
    """Return when the hours begin next, after `after`. None if they never do: without hours, or if they never end."""
    spans = open_spans(hours, zone, after, after + _SEARCH)
    return next((span.starts_at for span in spans if span.starts_at > after), None)


def open_spans(hours: Sequence[Hours], zone: str, start: datetime, end: datetime) -> Iterator[Span]:
    """Yield the spans within the hours between `start` and `end`, in UTC and in order. No two touch each other."""
    if start >= end:
        return
    if not hours:
        yield Span(start, end)
        return
    week = {
        day: [(first * _MINUTE, last * _MINUTE) for first, last in minutes]
        for day, minutes in _open_minutes(hours).items()
    }
    current: Span | None = None
    for starts_at, ends_at, offset in steady_spans(zone, start, end):
        wall = starts_at + offset
        day, weekday = datetime.combine(wall, _MIDNIGHT, wall.tzinfo) - offset, wall.isoweekday()
        while day < ends_at:
            for first, last in week[weekday]:
                opens, closes = max(day + first, starts_at), min(day + last, ends_at)
                if opens >= closes:
                    continue
                if current is not None and current.ends_at == opens:
                    current = Span(current.starts_at, closes)
                    continue
                if current is not None:
                    yield current
                current = Span(opens, closes)
            day += _ONE_DAY
            weekday = weekday % 7 + 1
    if current is not None:
        yield current


def _open_minutes(hours: Sequence[Hours]) -> dict[int, list[tuple[int, int]]]:
    """Return the spans of minutes for each day of the week, in order and without overlaps."""
    week: dict[int, list[tuple[int, int]]] = {day: [] for day in _WEEK}
    for each in hours:
        for day in each.days:
            if each.start < each.end:
                week[day].append((each.start, each.end))
            else:
                week[day].append((each.start, _DAY))
                week[day % 7 + 1].append((0, each.end))
    return {day: _union(spans) for day, spans in week.items()}


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
