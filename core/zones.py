"""Time zones of the locked package `tzdata`, not those of the machine: all processes compute the same times."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

TIME_ZONES = frozenset(resources.files("tzdata").joinpath("zones").read_text().split())

_SECOND = timedelta(seconds=1)
_PROBE = timedelta(days=3)
"""Less than the time between two changes of any zone, which a test verifies: none is skipped."""


class Steady(NamedTuple):
    """A span, in UTC, within which the zone keeps its offset: wall-clock time is UTC plus `offset`."""

    starts_at: datetime
    ends_at: datetime
    offset: timedelta


@cache
def zone(name: str) -> tzinfo:
    """Return the time zone. It is UTC for a stored name that is not one of TIME_ZONES.

    Another version of `tzdata` knew it: alerts are sent even then, and opening the name would read a path on our disk.
    """
    if name == "UTC" or name not in TIME_ZONES:
        return UTC
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def wall_time(name: str, moment: datetime) -> datetime:
    """Return the wall-clock time, without a zone."""
    return moment.astimezone(zone(name)).replace(tzinfo=None, fold=0)


def first_moment(name: str, wall: datetime) -> datetime:
    """Return when the clock shows a wall-clock time: the first of two, or the change of the clock that skips it."""
    local = wall.replace(tzinfo=zone(name), fold=0)
    at, other = local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)
    return at if other >= at else find_change(name, other, at)


def find_change(name: str, low: datetime, high: datetime) -> datetime:
    """Return when the clock changes, in (low, high], where it changes once."""
    in_zone = zone(name)
    offset = low.astimezone(in_zone).utcoffset()
    low = low.replace(microsecond=0)
    while high - low > _SECOND:
        middle = low + (high - low) // (2 * _SECOND) * _SECOND
        low, high = (middle, high) if middle.astimezone(in_zone).utcoffset() == offset else (low, middle)
    return high.replace(microsecond=0)


def steady_spans(name: str, start: datetime, end: datetime) -> Iterator[Steady]:
    """Yield the spans between changes of the clock that cover `start` to `end`, in order."""
    in_zone = zone(name)
    changes = (at for year in range(start.year, end.year + 1) for at in _changes(name, year) if start < at < end)
    for starts_at, ends_at in pairwise([start, *changes, end]):
        offset = starts_at.astimezone(in_zone).utcoffset()
        assert offset is not None
        yield Steady(starts_at, ends_at, offset)


@lru_cache(maxsize=4_096)
def _changes(name: str, year: int) -> tuple[datetime, ...]:
    """Return when the clock changes in a year of UTC."""
    in_zone = zone(name)
    at, end = datetime(year, 1, 1, tzinfo=UTC) - _SECOND, datetime(year + 1, 1, 1, tzinfo=UTC) - _SECOND
    offset, found = at.astimezone(in_zone).utcoffset(), []
    while at < end:
        after = min(at + _PROBE, end)
        if (other := after.astimezone(in_zone).utcoffset()) != offset:
            found.append(find_change(name, at, after))
        at, offset = after, other
    return tuple(found)
