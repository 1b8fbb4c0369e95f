"""Partitions by time of the large tables: created ahead of time, and dropped when they are old (ADR 12).

Each table has a default partition, so that no row is refused while a partition is missing or a worker's clock is wrong.
Locks that stop recording are awaited for at most LOCK_WAIT and held for moments. The next run retries what failed.
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

from core.db import advisory_lock

logger = logging.getLogger(__name__)

LOCK_WAIT = "500ms"
AHEAD = timedelta(days=7)
BEHIND = timedelta(days=1)  # results of yesterday are still recorded after midnight
# A day with more rows in the default partition stays there: moving them would stop recording for too long.
MOST_MOVED = 500_000
STRAYS_AT_ONCE = 10_000

Bounds = tuple[datetime, datetime]  # from the first to before the second


@dataclass(frozen=True, slots=True)
class Series:
    """A table partitioned by `column`, by days or by months of UTC. `kept_days` names the setting of its retention."""

    table: str
    column: str
    monthly: bool = False
    kept_days: str = "RESULTS_KEPT_DAYS"

    @property
    def default(self) -> str:
        return f"{self.table}_default"

    def bounds(self, moment: datetime) -> Bounds:
        """Return the bounds of the partition that contains a moment."""
        day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if not self.monthly:
            return day, day + timedelta(days=1)
        first = day.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)

    def name(self, start: datetime) -> str:
        return f"{self.table}_p{start.strftime(self._suffix)}"

    def start(self, name: str) -> datetime:
        """Reverse `name`. Raises ValueError for other names."""
        text = name.removeprefix(f"{self.table}_p")
        return datetime.strptime(text, self._suffix).replace(tzinfo=UTC)

    @property
    def _suffix(self) -> str:
        return "%Y%m" if self.monthly else "%Y%m%d"

    def wanted(self, *, now: datetime) -> list[Bounds]:
        """Return the partitions that should exist now, oldest first."""
        found = [self.bounds(now - BEHIND)]
        while (start := found[-1][1]) <= now + AHEAD:
            found.append(self.bounds(start))
        return found


RESULTS = Series("checks_checkresult", "checked_at")
ROLLUPS = Series("checks_hourlyrollup", "hour", monthly=True, kept_days="ROLLUPS_KEPT_DAYS")
SERIES = [RESULTS, ROLLUPS]
"""All such tables. Apps of higher floors add theirs, which have a column `monitor_id` too."""


def exists(series: Series) -> bool:
    """Return whether the table is migrated."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [series.default])
        return bool(cursor.fetchone()[0])


def parts(series: Series) -> list[Bounds]:
    """Return the existing partitions without the default one, oldest first.

    From the rows of the catalogue: to_regclass() of a partition's name would ask the session's cache, which misses
    what others created or dropped while this session waited for an advisory lock.
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
    """Create missing partitions and return their names. Concurrent runs are safe."""
    made = []
    # The latest first, so that the coming days are created even if the present one fails, because the default partition
    # has too many of its rows.
    for bounds in sorted(set(wanted) - set(parts(series)), reverse=True):
        name = series.name(bounds[0])
        with _catalogue(f"make {name}") as cursor:
            if bounds not in parts(series) and _make(cursor, series, bounds):
                made.append(name)
    return made


def _make(cursor: CursorWrapper, series: Series, bounds: Bounds) -> bool:
    """Create a partition and move its rows out of the default one. Return False if they are too many."""
    name, default = series.name(bounds[0]), series.default
    inside = f"{series.column} >= %s AND {series.column} < %s"
    # Recording has to wait at the parent: a row that waits at the default partition would be refused once it belongs
    # into the new one. ATTACH takes a weaker lock on the parent and the same on the default partition, but after the
    # rows have moved, and upgrading a lock can deadlock.
    cursor.execute(f"LOCK TABLE ONLY {series.table} IN SHARE ROW EXCLUSIVE MODE")
    cursor.execute(f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE")
    cursor.execute(
        f"SELECT count(*) FROM (SELECT FROM {default} WHERE {inside} LIMIT %s) AS waiting", [*bounds, MOST_MOVED + 1]
    )
    (waiting,) = cursor.fetchone()
    if waiting > MOST_MOVED:
        logger.error("%s is not created: too many of its rows are in %s", name, default)
        return False
    # Not PARTITION OF, which also blocks readers.
    cursor.execute(f"CREATE TABLE {name} (LIKE {series.table} INCLUDING DEFAULTS INCLUDING STORAGE)")
    cursor.execute(
        f"WITH moved AS (DELETE FROM {default} WHERE {inside} RETURNING *) INSERT INTO {name} SELECT * FROM moved",
        bounds,
    )
    # This creates its indexes, from those of the parent.
    cursor.execute(f"ALTER TABLE {series.table} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)", bounds)
    return True


def drop(series: Series, *, before: datetime) -> list[str]:
    """Drop the partitions that end by then, and return their names."""
    dropped = []
    for bounds in parts(series):
        if bounds[1] <= before:
            name = series.name(bounds[0])
            with _catalogue(f"drop {name}") as cursor:
                if bounds in parts(series):
                    # Detaching first would take the same lock; DETACH CONCURRENTLY fails if there is a default
                    # partition.
                    cursor.execute(f"DROP TABLE {name}")
                    dropped.append(name)
    return dropped


def delete_strays(series: Series, *, before: datetime) -> int:
    """Delete rows of the default partition from before that time, and return their number.

    They are few: late results for a dropped partition, or results from a wrong clock.
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
def _catalogue(what: str) -> Iterator[CursorWrapper]:
    """Run one transaction at a time, which gives up rather than keep recording waiting."""
    try:
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            advisory_lock("partitions")
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
            yield cursor
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        logger.warning("could not %s, because the table is locked; the next run retries", what)
