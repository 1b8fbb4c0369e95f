"""Hours, which results are found by and rolled up into."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import DateTimeField, Func

HOUR = timedelta(hours=1)
# Word for word the expression of the index result_hours: PostgreSQL uses it for nothing that is spelt otherwise.
# date_trunc would not do: it depends on the session's time zone, and an index may not.
HOUR_OF_CHECK = "date_bin('1 hour', checked_at, '2000-01-01 00:00+00')"
# Of the index result_times, which serves the roll-ups alone. Were it made of checked_at itself, the planner would join
# it to the other one where a monitor's results of a while are wanted, and read ten times as many rows.
MINUTE_OF_CHECK = "date_bin('1 minute', checked_at, '2000-01-01 00:00+00')"


class HourOf(Func):
    """HOUR_OF_CHECK for the ORM: the hour of UTC that a time lies in."""

    function = "date_bin"
    template = "%(function)s('1 hour', %(expressions)s, '2000-01-01 00:00+00')"
    arity = 1
    output_field = DateTimeField()


class MinuteOf(HourOf):
    """MINUTE_OF_CHECK for the ORM."""

    template = "%(function)s('1 minute', %(expressions)s, '2000-01-01 00:00+00')"


def start_of_hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def end_of_hour(moment: datetime) -> datetime:
    """The first full hour at or after it."""
    start = start_of_hour(moment)
    return start if start == moment else start + HOUR
