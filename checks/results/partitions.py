"""The large tables in parts by time: made ahead, and dropped whole when they are old (ADR 12).

Each has a default partition besides, so that no row is ever refused: not while a partition is missing, and not from
a worker whose clock is off. Locks that stop recording are waited for LOCK_WAIT at most, and held for as long as a few
entries in the catalogue take; what does not come about now does so with the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import LockNotAvailable

from core.db import hold

logger = logging.getLogger(__name__)

LOCK_WAIT = "500ms"
AHEAD = timedelta(days=7)
BEHIND = timedelta(days=1)  # results of yesterday still come in after midnight
# A day of which more rows lie in the default partition stays there: moving them would stop recording for too long.
MOST_MOVED = 500_000
STRAYS_AT_ONCE = 10_000

Bounds = tuple[datetime, datetime]  # from the first to before the second


@dataclass(frozen=True, slots=True)
class Series:
    """A table partitioned by `column`, by days or by months of UTC."""

    table: str
    column: str
    monthly: bool = False

    @property
    def default(self) -> str:
        return f"{self.table}_default"

    def bounds(self, moment: datetime) -> Bounds:
        """Those of the partition that a moment lies in."""
        day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if not self.monthly:
            return day, day + timedelta(days=1)
        first = day.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)

    def name(self, start: datetime) -> str:
        return f"{self.table}_p{start.strftime(self._suffix)}"

    def start(self, name: str) -> datetime:
        """The reverse of `name`. Raises ValueError for a name that is none of ours."""
        text = name.removeprefix(f"{self.table}_p")
        return datetime.strptime(text, self._suffix).replace(tzinfo=UTC)

    @property
    def _suffix(self) -> str:
        return "%Y%m" if self.monthly else "%Y%m%d"

    def wanted(self, *, now: datetime) -> list[Bounds]:
        """The partitions that there should be around now, oldest first."""
        found = [self.bounds(now - BEHIND)]
        while (start := found[-1][1]) <= now + AHEAD:
            found.append(self.bounds(start))
        return found


RESULTS = Series("checks_checkresult", "checked_at")
ROLLUPS = Series("checks_hourlyrollup", "hour", monthly=True)
SERIES = (RESULTS, ROLLUPS)


def is_there(series: Series) -> bool:
    """Whether the migration has been that makes it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [series.default])
        return bool(cursor.fetchone()[0])


def parts(series: Series) -> list[Bounds]:
    """The partitions that there are, oldest first, the default one left out.

    By the rows of the catalogue: to_regclass() of a partition's name would ask the session's cache, which does not
    hear of what others made or dropped while this one waited for an advisory lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT part.relname
              FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
             WHERE inhparent = to_regclass(%s) AND part.relname <> %s
            """,
            [series.table, series.default],
        )
        return sorted(series.bounds(series.start(name)) for (name,) in cursor.fetchall())


def make(series: Series, wanted: list[Bounds]) -> list[str]:
    """Make those that are missing; the names of those made. Any number of runs at once is fine."""
    made = []
    # The latest first: where the present day cannot be had, because its rows fill the default partition already,
    # the days to come are at least.
    for bounds in sorted(set(wanted) - set(parts(series)), reverse=True):
        name = series.name(bounds[0])
        with _put_off_while_locked(f"make {name}"):
            if _make(series, bounds):
                made.append(name)
    return made


def _make(series: Series, bounds: Bounds) -> bool:
    """Make one, unless somebody else has; rows that wait for it in the default partition move in."""
    name, default = series.name(bounds[0]), series.default
    inside = f"{series.column} >= %s AND {series.column} < %s"
    with _catalogue() as cursor:
        if bounds in parts(series):
            return False
        # Recording has to wait at the parent: what waits at the default partition was sent there already, and would
        # be refused when its row belongs into this one. ATTACH itself takes a lesser lock on the parent, and the
        # same one on the default partition, but after the rows have moved: two steps to one lock can deadlock.
        cursor.execute(f"LOCK TABLE ONLY {series.table} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(
            f"SELECT count(*) FROM (SELECT FROM {default} WHERE {inside} LIMIT %s) AS waiting",
            [*bounds, MOST_MOVED + 1],
        )
        (waiting,) = cursor.fetchone()
        if waiting > MOST_MOVED:
            logger.error("%s is not made: too many of its rows are in %s", name, default)
            return False
        # Not PARTITION OF, which locks out those who read, too.
        cursor.execute(f"CREATE TABLE {name} (LIKE {series.table} INCLUDING DEFAULTS INCLUDING STORAGE)")
        if waiting:
            cursor.execute(
                f"WITH moved AS (DELETE FROM {default} WHERE {inside} RETURNING *)"
                f" INSERT INTO {name} SELECT * FROM moved",
                bounds,
            )
        # Its indexes are built here, from those of the parent.
        cursor.execute(
            f"ALTER TABLE {series.table} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)", bounds
        )
    return True


def drop(series: Series, *, before: datetime) -> list[str]:
    """Drop the partitions that end by then; the names of those dropped."""
    dropped = []
    for start, end in parts(series):
        name = series.name(start)
        if end <= before:
            with _put_off_while_locked(f"drop {name}"):
                if _drop(series, (start, end)):
                    dropped.append(name)
    return dropped


def _drop(series: Series, bounds: Bounds) -> bool:
    with _catalogue() as cursor:
        if bounds not in parts(series):
            return False
        # Detaching first would take the same lock; concurrently it cannot be done beside a default partition.
        cursor.execute(f"DROP TABLE {series.name(bounds[0])}")
    return True


def delete_strays(series: Series, *, before: datetime) -> int:
    """Delete rows of the default partition that are older than that; how many they were.

    There are hardly any: what came late for a partition that is gone, or from a clock that is wrong.
    """
    deleted: int = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(
                f"DELETE FROM {series.default} WHERE ctid = ANY (ARRAY("
                f"SELECT ctid FROM {series.default} WHERE {series.column} < %s LIMIT %s))",
                [before, STRAYS_AT_ONCE],
            )
            deleted += cursor.rowcount
            if cursor.rowcount < STRAYS_AT_ONCE:
                return deleted


@contextmanager
def _catalogue() -> Iterator[CursorWrapper]:
    """A transaction of its own, one at a time, that gives up where it would keep recording waiting."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        hold("partitions")
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
        yield cursor


@contextmanager
def _put_off_while_locked(what: str) -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        logger.warning("could not %s beside what holds the table now; the next run will try again", what)
