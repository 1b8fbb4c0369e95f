"""Checks of healthchecks, as returned by `GET /api/v3/checks/` (also v1 and v2): `{"checks": […]}`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import date, timedelta

from celery.schedules import ParseException, crontab_parser

from manifests.importers.mapped import (
    MappedMonitor,
    MonitorBuilder,
    UnreadableFileError,
    UnsupportedError,
    items_of,
    load_json,
    map_items,
)

_DAY_SEC = 24 * 3600
_FROM = date(2024, 1, 1)  # eight years include leap years
_DAYS = 8 * 366

_IGNORED = {
    "tags": "tags are not supported",
    "desc": "descriptions are not supported",
    "channels": "alert channels are not imported",
    "methods": "every method counts as a ping",
    "manual_resume": "paused heartbeats are always resumed manually",
    "start_kw": "pings by e-mail are not supported",
    "success_kw": "pings by e-mail are not supported",
    "failure_kw": "pings by e-mail are not supported",
    "filter_subject": "pings by e-mail are not supported",
    "filter_body": "pings by e-mail are not supported",
    "filter_http_body": "ping bodies are ignored",
    "filter_default_fail": "ping bodies are ignored",
}


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if "checks" not in found:
            raise UnreadableFileError("the file has no checks")
        found = found["checks"]
    return map_items(items_of(found, what="checks"), _map, name=lambda item: item.get("name") or item.get("slug"))


def _map(builder: MonitorBuilder) -> None:
    builder.body["type"] = "heartbeat"
    schedule = builder.text("schedule")
    if schedule:
        _schedule(builder, schedule)
    elif builder.number("timeout") is None:
        raise UnsupportedError("timeout", "is missing, and there is no schedule")
    else:
        builder.seconds("timeout", to="interval_sec")
    builder.seconds("grace", to="grace_sec")
    builder.enabled = builder.text("status") != "paused"
    builder.note("ping_url", "the ping URL changes")
    builder.note_ignored(_IGNORED)


def _schedule(builder: MonitorBuilder, schedule: str) -> None:
    try:
        gap = longest_gap(schedule)
    except InvalidScheduleError as error:
        raise UnsupportedError("schedule", str(error)) from None
    builder.body["interval_sec"] = gap
    note = f"a ping is expected every {gap} s, the longest gap of the schedule"
    if (builder.text("tz") or "UTC") != "UTC":
        note += "; clock changes may make a gap one hour longer"
    builder.note("schedule", note)


class InvalidScheduleError(Exception):
    """Not a cron expression with five fields that runs at least twice."""


def longest_gap(schedule: str) -> int:
    """Return the longest time between two runs of a cron expression in seconds. Raises InvalidScheduleError."""
    fields = schedule.split()
    if len(fields) != 5 or len(schedule) > 200:
        raise InvalidScheduleError("is not a cron expression with five fields")
    minutes, hours, days, months, weekdays = fields
    times = sorted(hour * 3600 + minute * 60 for hour in _numbers(hours, 24) for minute in _numbers(minutes, 60))
    runs = list(
        _days(
            _numbers(days, 31, 1),
            _numbers(months, 12, 1),
            {number % 7 for number in _numbers(weekdays, 8)},  # 7 is Sunday, like 0
            either=not days.startswith("*") and not weekdays.startswith("*"),
        )
    )
    if len(runs) < 2:
        raise InvalidScheduleError("runs less than twice in eight years")
    within = max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)
    nights = max(later - earlier for earlier, later in itertools.pairwise(runs))
    return max(within, nights * _DAY_SEC - times[-1] + times[0])


def _numbers(field: str, count: int, first: int = 0) -> set[int]:
    try:
        found = set(crontab_parser(count, first).parse(field))
    except (ParseException, ValueError):
        raise InvalidScheduleError("is not a cron expression with five fields") from None
    if not found:
        raise InvalidScheduleError("is not a cron expression with five fields")
    return found


def _days(days: set[int], months: set[int], weekdays: set[int], *, either: bool) -> Iterator[int]:
    """Yield the days on which it runs.

    If both kinds of days are restricted, a day that matches either is included, as in cron.
    """
    for number in range(_DAYS):
        day = _FROM + timedelta(days=number)
        fits = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (any(fits) if either else all(fits)):
            yield number
