"""Move packed results, their reasons and roll-ups from one database to another (ADR 63).

Each partition is copied to a table of its own that nothing reads, `moving_…`, and compared. When all are equal, each
copy becomes a partition there, and then each original is dropped. So a run that is killed anywhere is continued by the
next one: the catalogues say how far it came, and until the last step the originals are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import psycopg
from django.db import connections

from checks.results.packing import LOCK as PACKING
from checks.results.partitions import PACKED, REASONS, ROLLUPS, Bounds, Series
from checks.results.rollups import LOCK as ROLL_UPS
from core.text import counted

MOVED = (REASONS, PACKED, ROLLUPS)
LOCKS = ("moving", "partitions", PACKING, ROLL_UPS)
CLOSED_AFTER = timedelta(days=2)
"""Partitions that ended this long ago change rarely: a day is merged, and late results are few."""
_PREFIX = "moving_"
_BLOCK = 64 * 1024
PAGES = 100_000
"""How many pages one statement reads."""

_UNFINISHED = f"^{PACKED.table}_p[0-9]+$"
"""Names of tables that are being packed or merged into, while they are no partitions. Packing makes them again."""
_TABLES = """
    SELECT relname
      FROM pg_class
     WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relispartition = %s AND relname ~ %s
     ORDER BY relname DESC
"""
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL)
      FROM pg_attribute
     WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
     ORDER BY attname
"""
# What of a value is summed, by its type. Neither reads values that are stored outside of the row.
_SUMS = {"bytea": "octet_length({})", "timestamp with time zone": "date_part('epoch', {})::bigint"}
_INDEXES = """
    SELECT contype = 'p', coalesce(pg_get_constraintdef(pg_constraint.oid), pg_get_indexdef(indexrelid))
      FROM pg_index LEFT JOIN pg_constraint ON conindid = indexrelid
     WHERE indrelid = %s::regclass
"""
_START_OF_QUARTER = "date_bin('6 hours', {}.start, '2000-01-01 00:00+00')"
_QUARTERS = f"""
    copy.monitor_id = present.monitor_id
      AND (present.start IN (copy.start, {_START_OF_QUARTER.format("copy")})
           OR copy.start = {_START_OF_QUARTER.format("present")})
"""
"""Rows that may have the same results: one of six hours contains those of each hour."""
_INDEX_NAMES = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s"
_IDENTITY = "SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database()"

Report = Callable[[str], object]


class MoveRefused(Exception):
    """The move cannot begin, or could not be finished. Nothing is lost."""


@dataclass(frozen=True)
class Part:
    """A table with rows of a series: a partition, or the default one."""

    series: Series
    name: str

    @property
    def copy(self) -> str:
        return f"{_PREFIX}{self.name}"

    @property
    def bounds(self) -> Bounds | None:
        return None if self.name == self.series.default else self.series.bounds_of(self.name)


@contextmanager
def opened(alias: str) -> Iterator[psycopg.Connection]:
    """Connect to a database without the pool. Raises psycopg.Error."""
    parameters = connections[alias].get_connection_params() | {"cursor_factory": psycopg.Cursor, "autocommit": True}
    with psycopg.connect(**parameters) as database:
        yield database


def is_same(one: psycopg.Connection, other: psycopg.Connection) -> bool:
    """Return whether both are connected to the same database."""
    return one.execute(_IDENTITY).fetchall() == other.execute(_IDENTITY).fetchall()


def left_behind(database: psycopg.Connection) -> list[str]:
    """Return the tables of the history that have rows in this database."""
    tables = [series.table for series in MOVED]
    found = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = ANY (%s)"
    return [name for (name,) in database.execute(found, [tables]).fetchall() if _has_rows(database, name)]


@contextmanager
def locked(*databases: psycopg.Connection, ahead: bool = False) -> Iterator[None]:
    """Keep packing, roll-ups and changes of partitions away from these databases. Raises MoveRefused.

    `ahead`: only other moves. The connections must be used for nothing else until then.
    """
    for database in databases:
        database.execute("BEGIN")
        database.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        for lock in LOCKS[:1] if ahead else LOCKS:
            found = database.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [lock])
            if found.fetchone() != (True,):
                raise MoveRefused("Another process packs, rolls up or moves results: stop all processes first.")
    yield
    for database in databases:
        database.execute("COMMIT")


class Move:
    """A move of the history from `source` to `target`."""

    def __init__(self, source: psycopg.Connection, target: psycopg.Connection, report: Report) -> None:
        self._source, self._target, self._report = source, target, report
        for series in MOVED:
            if _columns(source, series.table) != _columns(target, series.table):
                raise MoveRefused(f"{series.table} has other columns in the other database: run manage.py migrate.")

    def copy_closed(self, now: datetime) -> None:
        """Copy what is unlikely to change, while all processes run. `finish` compares it and copies the rest."""
        for part in self._parts():
            if _is_closed(part, now):
                try:
                    self._copy(part)
                except psycopg.errors.UndefinedTable:
                    self._report(f"{part.name}: has expired")

    def finish(self, still_locked: Callable[[], object]) -> None:
        """Copy the rest, publish the copies and drop the originals. Raises MoveRefused.

        Under the locks of both databases; `still_locked` raises psycopg.Error if they are lost.
        """
        self._drop(self._source, _UNFINISHED)
        self._drop(self._target, _UNFINISHED)
        parts = self._parts()
        kept = {part: problem for part in parts if (problem := self._copied(part))}
        still_locked()
        moved = [part for part in parts if part not in kept]
        for part in moved:
            if problem := self._publish(part):
                kept[part] = problem
        still_locked()
        for part in moved:
            if part not in kept:
                self._empty(part)
        self._drop(self._target, f"^{_PREFIX}checks_")  # copies of expired partitions, and of those that are kept
        if kept:
            raise MoveRefused("\n".join(f"{part.name} was not moved: {why}" for part, why in kept.items()))

    def _parts(self) -> list[Part]:
        found = [
            Part(series, name)
            for series in MOVED
            for (name,) in self._source.execute(_TABLES, [True, f"^{series.table}_(p[0-9]+|default)$"]).fetchall()
        ]
        return [part for part in found if part.bounds is not None or _has_rows(self._source, part.name)]

    # Copies

    def _copied(self, part: Part) -> str | None:
        """Return None if an equal copy exists afterwards, else why it does not."""
        if self._exists(part.name) and self._sums(self._target, part.name) == self._sums(self._source, part.name):
            self._target.execute(f"DROP TABLE IF EXISTS {part.copy}")
            return None  # published by an earlier run, or both are empty
        self._copy(part)
        if self._sums(self._target, part.copy) != self._sums(self._source, part.name):
            return "its copy differs from it"
        return None

    def _copy(self, part: Part) -> None:
        wanted = self._sums(self._source, part.name)
        if self._exists(part.copy):
            if self._sums(self._target, part.copy) == wanted:
                return
            self._target.execute(f"DROP TABLE {part.copy}")
        columns = ", ".join(name for name, _ in _columns(self._source, part.series.table))
        with self._target.transaction():
            self._target.execute(
                f"CREATE TABLE {part.copy} (LIKE {part.series.table} INCLUDING DEFAULTS INCLUDING STORAGE)"
            )
            for place in _ranges(self._source, part.name):
                selected = f"SELECT {columns} FROM {part.name} WHERE {place}"
                into = f"{part.copy} ({columns})"
                with (
                    self._source.cursor().copy(f"COPY ({selected}) TO STDOUT (FORMAT binary)") as rows,
                    self._target.cursor().copy(f"COPY {into} FROM STDIN (FORMAT binary, FREEZE)") as copy,
                ):
                    for block in _blocks(rows):
                        copy.write(block)
            # With its indexes and this condition, it becomes a partition without another look at the rows.
            for is_key, definition in self._target.execute(_INDEXES, [part.series.table]).fetchall():
                what = (
                    definition if is_key else f"CREATE INDEX ON {part.copy} USING {definition.partition(' USING ')[2]}"
                )
                self._target.execute(f"ALTER TABLE {part.copy} ADD {what}" if is_key else what)
            if part.bounds is not None:
                column, (start, end) = part.series.column, part.bounds
                inside = f"{column} >= '{start.isoformat()}' AND {column} < '{end.isoformat()}'"
                self._target.execute(f"ALTER TABLE {part.copy} ADD CONSTRAINT {part.copy}_span CHECK ({inside})")
        self._report(f"{part.name}: copied {counted(wanted[0], 'row')}")

    # Publishing

    def _publish(self, part: Part) -> str | None:
        """Make the copy a partition, or add its rows to one of that time. Return why it cannot, or None."""
        if not self._exists(part.copy):
            return None  # published by an earlier run
        with self._target.transaction():
            if part.bounds is None:
                problem = self._add(part, part.series.table)
            else:
                problem = self._attach_or_add(part, part.bounds)
        if problem is None:
            self._report(f"{part.name}: moved")
        return problem

    def _attach_or_add(self, part: Part, bounds: Bounds) -> str | None:
        series, (start, end) = part.series, bounds
        rows = self._target.execute(_TABLES, [True, f"^{series.table}_p[0-9]+$"]).fetchall()
        others = {name: series.bounds_of(name) for (name,) in rows}
        others = {name: (first, last) for name, (first, last) in others.items() if first < end and start < last}
        for name in [name for name in others if not _has_rows(self._target, name)]:
            self._target.execute(f"DROP TABLE {name}")
            del others[name]
        if others:
            [name, (first, last)] = next(iter(others.items()))
            return self._add(part, name) if first <= start and end <= last else f"its time is in {', '.join(others)}"
        if self._exists(series.default):
            inside = f"{series.default} WHERE {series.column} >= %s AND {series.column} < %s"
            if self._target.execute(f"SELECT EXISTS (SELECT FROM {inside})", bounds).fetchone() == (True,):
                return f"{series.default} has rows of its time"
        self._target.execute(f"ALTER TABLE {part.copy} RENAME TO {part.name}")
        span = " TO ".join(f"('{moment.isoformat()}')" for moment in bounds)
        self._target.execute(f"ALTER TABLE {series.table} ATTACH PARTITION {part.name} FOR VALUES FROM {span}")
        self._target.execute(f"ALTER TABLE {part.name} DROP CONSTRAINT {part.copy}_span")
        for (index,) in self._target.execute(_INDEX_NAMES, [part.name]).fetchall():
            self._target.execute(f"ALTER INDEX {index} RENAME TO {index.removeprefix(_PREFIX)}")
        self._target.execute(f"ANALYZE {part.name}")
        return None

    def _add(self, part: Part, place: str) -> str | None:
        """Add the rows that `place` does not have. Return a problem if it has others in their place.

        Of two roll-ups of an hour, the one that counts more checks is kept: it counted late results too.
        """
        series, named = part.series, f"{part.copy} AS copy"
        names = [name for name, _ in _columns(self._target, series.table)]
        copied, present = (", ".join(f"{table}.{name}" for name in names) for table in ("copy", "present"))
        same = f"copy.monitor_id = present.monitor_id AND copy.{series.column} = present.{series.column}"
        if series is ROLLUPS:
            self._target.execute(
                f"UPDATE {place} AS present SET ({', '.join(names)}) = ({copied}) FROM {named}"
                f" WHERE {same} AND copy.up + copy.slow + copy.down > present.up + present.slow + present.down"
            )
        equal = same if series is ROLLUPS else f"{same} AND ({copied}) IS NOT DISTINCT FROM ({present})"
        self._target.execute(f"DELETE FROM {named} USING {place} AS present WHERE {equal}")
        near = _QUARTERS if series is PACKED else same
        conflict = self._target.execute(f"SELECT EXISTS (SELECT FROM {named} JOIN {place} AS present ON {near})")
        if conflict.fetchone() == (True,):
            return f"{place} has other rows of the same monitors and hours"
        self._target.execute(f"INSERT INTO {series.table} ({', '.join(names)}) SELECT {copied} FROM {named}")
        self._target.execute(f"DROP TABLE {part.copy}")
        return None

    # The end

    def _empty(self, part: Part) -> None:
        self._source.execute(f"{'TRUNCATE' if part.bounds is None else 'DROP TABLE'} {part.name}")

    def _drop(self, database: psycopg.Connection, names: str) -> None:
        for (name,) in database.execute(_TABLES, [False, names]).fetchall():
            database.execute(f"DROP TABLE {name}")

    # Queries

    def _exists(self, table: str) -> bool:
        return self._target.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone() == (True,)

    def _sums(self, database: psycopg.Connection, table: str) -> tuple[Any, ...]:
        """Return the number of rows, and sums that differ unless the rows are the same."""
        sums = (f"coalesce(sum({_SUMS.get(kind, '{}').format(name)}), 0)" for name, kind in _columns(database, table))
        statement = f"SELECT {', '.join(chain(['count(*)'], sums))} FROM {table} WHERE "
        found = [database.execute(statement + place).fetchall()[0] for place in _ranges(database, table)]
        return tuple(map(sum, zip(*found, strict=True)))


def _ranges(database: psycopg.Connection, table: str) -> Iterator[str]:
    """Yield conditions for the parts of a table that one statement reads.

    VACUUM removes no row, of any table, that the snapshot of a running statement may see.
    """
    size = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::bigint"
    [(pages,)] = database.execute(size, [table]).fetchall()
    for first in range(0, pages or 1, PAGES):
        end = f" AND ctid < '({first + PAGES},0)'" if first + PAGES < pages else ""
        yield f"ctid >= '({first},0)'{end}"


def _blocks(rows: Iterable[bytes | bytearray | memoryview]) -> Iterator[bytes]:
    """Yield larger pieces. PostgreSQL sends each row as one, and to pass on each of them takes twice as long."""
    block = bytearray()
    for row in rows:
        block += row
        if len(block) > _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def _is_closed(part: Part, now: datetime) -> bool:
    if part.bounds is None or part.bounds[1] > now - CLOSED_AFTER:
        return False
    return part.series.bounds(part.bounds[0]) == part.bounds  # not an hour, which is about to be merged


def _columns(database: psycopg.Connection, table: str) -> Sequence[tuple[str, str]]:
    return database.execute(_COLUMNS, [table]).fetchall()


def _has_rows(database: psycopg.Connection, table: str) -> bool:
    return database.execute(f"SELECT EXISTS (SELECT FROM {table})").fetchone() == (True,)
