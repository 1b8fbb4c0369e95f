"""The settings of every type that can follow a cron schedule. A type without them lists them in `unasked`."""

from __future__ import annotations

from typing import Annotated

from core.errors import ValidationFailed
from monitors import cron
from monitors.types.base import MonitorType
from monitors.types.settings import MonitorConfig, Setting

UTC = "UTC"
_ANY = "0 0 * * *"

Expression = Annotated[
    str | None,
    Setting(
        description="heartbeat and scheduler: a cron expression of five fields, instead of interval_sec.",
        help="A cron expression: minute, hour, day of month, month, day of week.",
        position=21,
        section="when",
        max_length=cron.MAX_EXPRESSION,
        placeholder="none",
        probed=False,
        public=True,
    ),
]
TimeZone = Annotated[
    str,
    Setting(
        description="heartbeat and scheduler: the IANA time zone of schedule.",
        label="Time zone",
        help="The schedule follows its clock changes.",
        position=22,
        section="when",
        max_length=64,
        probed=False,
        public=True,
    ),
]


def schedule_of(config: MonitorConfig) -> cron.Schedule | None:
    """Return the schedule of a valid configuration, or None if its interval counts."""
    expression = config["schedule"]
    return None if expression is None else cron.schedule(expression, config["timezone"])


def settle_schedule(config: MonitorConfig, kind: MonitorType, *, floor_sec: int) -> dict[str, str | None]:
    """Return the values of `schedule` and `timezone` to store; raises ValidationFailed."""
    expression, timezone = config["schedule"], config["timezone"] or UTC
    if expression is not None:
        expression = " ".join(expression.split())
    if "schedule" not in kind.asked:
        if expression is not None:
            raise ValidationFailed(f"a monitor of type {kind.name} is checked by its interval.", field="schedule")
        if timezone != UTC:
            raise ValidationFailed(f"a monitor of type {kind.name} has no schedule.", field="timezone")
    if expression is None:
        parse_schedule(_ANY, timezone, floor_sec=0)
    else:
        parse_schedule(expression, timezone, floor_sec=floor_sec)
    return {"schedule": expression, "timezone": timezone}


def parse_schedule(expression: str, timezone: str, *, floor_sec: int) -> cron.Schedule:
    """Return the schedule; raises ValidationFailed. `floor_sec` is the plan's minimum interval."""
    try:
        schedule = cron.schedule(expression, timezone)
    except cron.BadScheduleError as error:
        raise ValidationFailed(str(error), field=error.setting) from None
    gap_sec = schedule.least_gap().total_seconds()
    if gap_sec < floor_sec:
        said = f"two runs are {gap_sec:g} s apart, and the plan's minimum is {floor_sec} s."
        raise ValidationFailed(said, field="schedule", limit=floor_sec)
    return schedule
