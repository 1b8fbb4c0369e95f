"""Next times of cron schedules, stored for statements that record pings and runs without loading the monitor.

The rows are a cache with the input of each computation. A statement that finds no valid time leaves the monitor to the
slow path, which computes it in Python and writes the row. So edits, new time zone data and the end of the stored times
need no handling elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from monitors.cron import TZDATA_VERSION, Schedule
from monitors.models import Monitor, ScheduleSlots

STORED = 60


def next_slot_sql(after: str, *, tzdata: str) -> str:
    """Return a subquery for the schedule's first time after `after`, NULL if it is not stored.

    `after` is an SQL expression, `tzdata` the placeholder for TZDATA_VERSION. The query has `monitor`.
    """
    return f"""(
        SELECT min(time)
          FROM monitors_scheduleslots AS slots, unnest(slots.times) AS time
         WHERE slots.monitor_id = monitor.id
           AND slots.schedule = monitor.config->>'schedule'
           AND slots.timezone = monitor.config->>'timezone'
           AND slots.tzdata = {tzdata}
           AND slots.since <= {after}
           AND time > {after}
    )"""  # noqa: S608


def refill_slots(monitors: Collection[Monitor]) -> None:
    """Store the coming times of those monitors whose stored times ended or are outdated. Their states are locked."""
    wanted = {
        monitor.pk: (monitor.schedule, since)
        for monitor in monitors
        if monitor.schedule is not None and (since := _counted_from(monitor)) is not None
    }
    if not wanted:
        return
    stored = ScheduleSlots.objects.in_bulk(wanted)
    rows = [
        ScheduleSlots(
            monitor_id=key,
            schedule=schedule.expression,
            timezone=schedule.timezone,
            tzdata=TZDATA_VERSION,
            since=since,
            times=schedule.upcoming(since, STORED),
        )
        for key, (schedule, since) in sorted(wanted.items())
        if not (key in stored and _is_valid(stored[key], schedule, since=since))
    ]
    ScheduleSlots.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["monitor"],
        update_fields=["schedule", "timezone", "tzdata", "since", "times"],
    )


def _counted_from(monitor: Monitor) -> datetime | None:
    """Return what the next slot is counted from: the last ping of a heartbeat, or the last slot of a scheduler."""
    if monitor.kind.waits:
        return monitor.state.last_ping_at
    return monitor.state.slot_at or monitor.created_at


def _is_valid(row: ScheduleSlots, schedule: Schedule, *, since: datetime) -> bool:
    """Return whether the row has the first time after `since`."""
    sources = (row.schedule, row.timezone, row.tzdata)
    return (
        sources == (schedule.expression, schedule.timezone, TZDATA_VERSION)
        and row.since <= since
        and any(time > since for time in row.times)
    )
