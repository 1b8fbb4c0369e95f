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

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import LockNotAvailable

from checks.results import database
from checks.results.hours import HOUR
from core.db import advisory_lock

logger = logging.getLogger(__name__)

LOCK_WAIT = "500ms"
AHEAD = timedelta(days=7)
BEHIND = timedelta(days=1)  # results of yesterday are still recorded after midnight
# A day with more rows in the default partition stays there: moving them would stop recording for too long.
MOST_MOVED = 500_000
STRAYS_AT_ONCE = 10_000

Bounds = tuple[datetime, datetime]  # from the first to before the second
_HOURLY = "%Y%m%d%H"
SPLIT_BEFORE = timedelta(hours=3)
"""How long before it begins a day of results gets partitions by hour."""
PACKS_FROM = """
    SELECT applied + interval '1 day' FROM django_migrations WHERE app = 'checks' AND name = '0005_packed_history'
"""


@dataclass(frozen=True, slots=True)
class Series:
    """A table partitioned by `column`, by days or by months of UTC. `kept_days` names the setting of its retention.

    A series by days may have partitions of an hour too. One that is not made `ahead` has no default partition. That of
    `history` may be in another database.
    """

    table: str
    column: str
    monthly: bool = False
    kept_days: str = "RESULTS_KEPT_DAYS"
    ahead: bool = True
    history: bool = False

    @property
    def alias(self) -> str:
        """The alias of its database."""
        return database.alias() if self.history else DEFAULT_DB_ALIAS

    def cursor(self) -> CursorWrapper:
        return connections[self.alias].cursor()

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

    def name(self, start: datetime, end: datetime | None = None) -> str:
        """Return the name of a partition. `end` is needed for one of an hour only."""
        suffix = "%Y%m" if self.monthly else _HOURLY if end is not None and end - start <= HOUR else "%Y%m%d"
        return f"{self.table}_p{start.strftime(suffix)}"

    def bounds_of(self, name: str) -> Bounds:
        """Reverse `name`. Raises ValueError for other names."""
        text = name.removeprefix(f"{self.table}_p")
        if len(text) == len("YYYYMMDDHH") and not self.monthly:
            start = datetime.strptime(text, _HOURLY).replace(tzinfo=UTC)
            return start, start + HOUR
        return self.bounds(datetime.strptime(text, "%Y%m" if self.monthly else "%Y%m%d").replace(tzinfo=UTC))

    def start(self, name: str) -> datetime:
        return self.bounds_of(name)[0]

    def wanted(self, *, now: datetime) -> list[Bounds]:
        """Return the partitions that should exist now, oldest first."""
        if not self.ahead:
            return []
        found = [self.bounds(now - BEHIND)]
        while (start := found[-1][1]) <= now + AHEAD:
            found.append(self.bounds(start))
        return found


RESULTS = Series("checks_checkresult", "checked_at")
ROLLUPS = Series("checks_hourlyrollup", "hour", monthly=True, kept_days="ROLLUPS_KEPT_DAYS", history=True)
PACKED = Series("checks_packedresults", "start", ahead=False, history=True)
REASONS = Series("checks_packedreasons", "hour", ahead=False, history=True)
PUBLISHED = Series("checks_publishedresults", "checked_at", ahead=False)
"""Tables with names of such partitions were partitions of RESULTS. They are packed, and not dropped yet."""
SERIES = [RESULTS, ROLLUPS, PACKED, REASONS]
"""All such tables. Apps of higher floors add theirs, which have a column `monitor_id` too."""


def exists(series: Series) -> bool:
    """Return whether the table is migrated."""
    with series.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [series.table])
        return bool(cursor.fetchone()[0])


def parts(series: Series) -> list[Bounds]:
    """Return the existing partitions without the default one, oldest first.

    From the rows of the catalogue: to_regclass() of a partition's name would ask the session's cache, which misses
    what others created or dropped while this session waited for an advisory lock.
    """
    with series.cursor() as cursor:
        cursor.execute(
            """
            SELECT part.relname
              FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
             WHERE inhparent = to_regclass(%s) AND part.relname <> %s
            """,
            [series.table, series.default],
        )
        return sorted(series.bounds_of(name) for (name,) in cursor.fetchall())


def detached(series: Series) -> list[Bounds]:
    """Return the tables that have the name of a partition and are not attached, oldest first."""
    with series.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname
              FROM pg_class
             WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND NOT relispartition
               AND relname ~ %s
            """,
            [f"^{series.table}_p[0-9]+$"],
        )
        return sorted(series.bounds_of(name) for (name,) in cursor.fetchall())


def may_pack(now: datetime) -> bool:
    """Return whether a day has passed since the migration for packed results.

    Until then processes of an earlier version may run. They do not see packed results, and fail if a partition has the
    name of an hour.
    """
    with connection.cursor() as cursor:
        cursor.execute(PACKS_FROM)
        row = cursor.fetchone()
    return row is None or row[0] <= now


def make(series: Series, wanted: list[Bounds]) -> list[str]:
    """Create missing partitions and return their names. Concurrent runs are safe."""
    made = []
    # The latest first, so that the coming days are created even if the present one fails, because the default partition
    # has too many of its rows.
    for bounds in sorted(set(wanted) - set(parts(series)), reverse=True):
        name = series.name(*bounds)
        with catalogue(f"make {name}", series) as cursor:
            if not _overlaps(bounds, parts(series)) and _make(cursor, series, bounds):
                made.append(name)
    return made


def _overlaps(bounds: Bounds, others: list[Bounds]) -> bool:
    """Return whether one of the others has some of that time: hours of the same day, for example."""
    return any(start < bounds[1] and bounds[0] < end for start, end in others)


def split_days(*, now: datetime) -> list[str]:
    """Replace the empty partition of a day of results that begins soon by hours, and return their names.

    Only a whole partition can be dropped once it is packed. Days ahead are not split, because each hour costs files:
    if this does not run, results go to the day, which is packed when it is over.
    """
    made = []
    for start, end in parts(RESULTS):
        if now < start <= now + SPLIT_BEFORE and end - start > HOUR:
            day = RESULTS.name(start, end)
            with catalogue(f"split {day}", RESULTS) as cursor:
                if (start, end) not in parts(RESULTS):
                    continue
                cursor.execute(f"LOCK TABLE ONLY {RESULTS.table} IN ACCESS EXCLUSIVE MODE")
                cursor.execute(f"SELECT EXISTS (SELECT FROM {day})")
                if cursor.fetchone()[0]:  # of a worker whose clock is wrong
                    continue
                cursor.execute(f"DROP TABLE {day}")
                hours = [
                    (start + number * HOUR, start + (number + 1) * HOUR) for number in range((end - start) // HOUR)
                ]
                made += [RESULTS.name(*hour) for hour in hours if _make(cursor, RESULTS, hour)]
    return made


def _make(cursor: CursorWrapper, series: Series, bounds: Bounds) -> bool:
    """Create a partition and move its rows out of the default one. Return False if they are too many."""
    name, default = series.name(*bounds), series.default
    if not series.ahead:
        cursor.execute(f"CREATE TABLE {name} (LIKE {series.table} INCLUDING DEFAULTS INCLUDING STORAGE)")
        cursor.execute(f"ALTER TABLE {series.table} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)", bounds)
        return True
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
            name = series.name(*bounds)
            with catalogue(f"drop {name}", series) as cursor:
                if bounds in parts(series):
                    # Detaching first would take the same lock; DETACH CONCURRENTLY fails if there is a default
                    # partition.
                    cursor.execute(f"DROP TABLE {name}")
                    dropped.append(name)
    return dropped


def drop_detached(series: Series, bounds: Bounds) -> None:
    name = series.name(*bounds)
    with catalogue(f"drop {name}", series) as cursor:
        if bounds in detached(series):
            cursor.execute(f"DROP TABLE {name}")


def delete_strays(series: Series, *, before: datetime) -> int:
    """Delete rows of the default partition from before that time, and return their number.

    They are few: late results for a dropped partition, or results from a wrong clock.
    """
    deleted: int = 0
    if not series.ahead:
        return deleted
    with series.cursor() as cursor:
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
def catalogue(what: str, series: Series) -> Iterator[CursorWrapper]:
    """Run one transaction at a time in its database, which gives up rather than keep recording waiting."""
    try:
        with transaction.atomic(using=series.alias, durable=True), series.cursor() as cursor:
            advisory_lock("partitions", using=series.alias)
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
            yield cursor
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        logger.warning("could not %s, because the table is locked; the next run retries", what)
