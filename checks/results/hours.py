"""The hour of a result, which its indexes and roll-ups use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import DateTimeField, Func

HOUR = timedelta(hours=1)
PLAIN_FOR = HOUR
"""How long the results of an hour stay rows after its end: checks on demand, incidents and pages read them often."""
# Exactly the expression of the index result_hours: PostgreSQL uses the index for no other spelling. date_trunc
# depends on the session's time zone, which an index may not.
HOUR_OF_CHECK = "date_bin('1 hour', checked_at, '2000-01-01 00:00+00')"


class HourOf(Func):
    """HOUR_OF_CHECK for the ORM: the UTC hour of a time."""

    function = "date_bin"
    template = "%(function)s('1 hour', %(expressions)s, '2000-01-01 00:00+00')"
    arity = 1
    output_field = DateTimeField()


class MinuteOf(HourOf):
    """The UTC minute of a time. Only migrations name it, for an index that is gone."""

    template = "%(function)s('1 minute', %(expressions)s, '2000-01-01 00:00+00')"


def start_of_hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
