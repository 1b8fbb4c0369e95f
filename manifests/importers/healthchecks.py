"""Checks of healthchecks, as returned by `GET /api/v3/checks/` (also v1 and v2): `{"checks": […]}`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import date, timedelta

from celery.schedules import ParseException, crontab_parser

from manifests.importers import rows
from manifests.importers.mapped import MappedMonitor, MonitorBuilder, Table, UnreadableFileError, load_json, map_items

_DAY_SEC = 24 * 3600
_FROM = date(2024, 1, 1)  # eight years include leap years
_DAYS = 8 * 366


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if "checks" not in found:
            raise UnreadableFileError("the file has no checks")
        found = found["checks"]
    return map_items(found, _map, what="checks", name=lambda item: item.get("name") or item.get("slug"))


def _map(builder: MonitorBuilder) -> None:
    builder.apply(_HEARTBEAT)
    builder.enabled = builder.text("status") != "paused"
    builder.apply(_IGNORED)


def _timeout(builder: MonitorBuilder, field: str) -> None:
    if builder.text("schedule"):
        return
    if builder.number(field) is None:
        builder.reject(field, "is missing, and there is no schedule")
    rows.whole_number("interval_sec")(builder, field)


def _schedule(builder: MonitorBuilder, field: str) -> None:
    schedule = builder.text(field)
    if not schedule:
        return
    try:
        gap = longest_gap(schedule)
    except InvalidScheduleError as error:
        builder.reject(field, str(error))
    builder.body["interval_sec"] = gap
    note = f"a ping is expected every {gap} s, the longest gap of the schedule"
    if (builder.text("tz") or "UTC") != "UTC":
        note += "; clock changes may make a gap one hour longer"
    builder.note(field, note)


_HEARTBEAT: Table = {
    "type": rows.constants(type="heartbeat"),
    "schedule": _schedule,
    "timeout": _timeout,
    "grace": rows.whole_number("grace_sec"),
    "ping_url": rows.notice("the ping URL changes"),
}
_IGNORED: Table = {
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


class InvalidScheduleError(Exception):
    """Not a cron expression with five fields that runs at least twice."""


def longest_gap(schedule: str) -> int:
    """Return the longest time between two runs of a cron expression in seconds. Raises InvalidScheduleError."""
    fields = schedule.split()
    if len(fields) != 5 or len(schedule) > 200:
        raise InvalidScheduleError("is not a cron expression with five fields")
    minutes, hours, days, months, weekdays = map(_numbers, fields, (60, 24, 31, 12, 8), (0, 0, 1, 1, 0))
    weekdays = {number % 7 for number in weekdays}  # 7 is Sunday, like 0
    times = sorted(hour * 3600 + minute * 60 for hour in hours for minute in minutes)
    # If both kinds of days are restricted, a day that matches either is included, as in cron.
    fits = all if fields[2].startswith("*") or fields[4].startswith("*") else any
    runs = []
    for number in range(_DAYS):
        day = _FROM + timedelta(days=number)
        if day.month in months and fits((day.day in days, day.isoweekday() % 7 in weekdays)):
            runs.append(number)
    if len(runs) < 2:
        raise InvalidScheduleError("runs less than twice in eight years")
    within = max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)
    nights = max(later - earlier for earlier, later in itertools.pairwise(runs))
    return max(within, nights * _DAY_SEC - times[-1] + times[0])


def _numbers(field: str, count: int, first: int) -> set[int]:
    try:
        if found := set(crontab_parser(count, first).parse(field)):
            return found
    except (ParseException, ValueError):
        pass
    raise InvalidScheduleError("is not a cron expression with five fields")
