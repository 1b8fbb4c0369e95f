"""Migrate the newest frozen database with large tables, and measure for how long each lock stops others.

    python -m tests.upgrade.locks [--rows ROWS] [--dump FILE]

Before that, each table that a pending migration touches is filled to ROWS rows (default: 10,000,000): copies of one
of its rows, with other keys. Locks that writers wait for are sampled every SAMPLE_SEC while `migrate` runs. The last
line is one JSON object: rows, the seconds of `migrate`, and by table the longest lock in seconds. Exits 1 if one was
longer than LONGEST_SEC.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, LiteralString

import django
import psycopg
from psycopg import sql

from devserver.data_folder import SUPERUSER
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place
from tests.upgrade.dumps import dumps, restore

LONGEST_SEC = 1.0
SAMPLE_SEC = 0.01
LOCKS: LiteralString = """
SELECT coalesce(pg_partition_root(c.oid), c.oid)::regclass::text, l.pid, l.virtualtransaction
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
 WHERE l.granted AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND c.relkind IN ('r', 'p') AND c.oid >= 16384
"""
COLUMNS: LiteralString = """
SELECT a.attname, format_type(a.atttypid, NULL),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY (i.indkey))
  FROM pg_attribute a
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 ORDER BY a.attnum
"""
# How the values of unique columns differ in each copy. Other columns keep their values.
OTHERS: Mapping[str, LiteralString] = {
    "smallint": "{name}",
    "integer": "1000000 + n",
    "bigint": "1000000 + n",
    "uuid": "gen_random_uuid()",
    "character varying": "left(md5(n::text), 20)",
    "text": "md5(n::text)",
    "bytea": "decode(md5(n::text), 'hex')",
    "date": "{name}",
    "timestamp with time zone": "{name} + n * interval '1 microsecond'",
    "boolean": "{name}",
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dump", type=Path, default=dumps()[-1])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-locks-") as name, ExitStack() as stack:
        folder = Path(name)
        serve_privately(stack, folder)
        restore(given.dump, os.environ["DATABASE_URL"])
        django.setup()
        with superuser() as database:
            for table in touched():
                fill(database, table, given.rows)
                _say(f"{table}: {given.rows} rows")
        start = time.monotonic()
        with sampled() as longest:
            migrate(Place())
        seconds = time.monotonic() - start
    locks = {table: round(held, 3) for table, held in sorted(longest.items())}
    print(json.dumps({"rows": given.rows, "migrate_s": round(seconds, 1), "locks_s": locks}))  # noqa: T201
    return int(max(locks.values(), default=0) > LONGEST_SEC)


def superuser() -> psycopg.Connection:
    """Connect as a role that may disable foreign keys."""
    url = os.environ["DATABASE_URL"]
    return psycopg.connect(url, user=SUPERUSER, autocommit=True)


def touched() -> list[str]:
    """Return the filled tables that pending migrations touch: of the models they name, else all of their app."""
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    tables: set[str] = set()
    for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        for operation in migration.operations:
            named = {getattr(operation, each, None) for each in ("model_name", "name")}
            models = list(apps.get_app_config(migration.app_label).get_models())
            some = [model for model in models if model._meta.model_name in {str(each).lower() for each in named}]
            tables.update(model._meta.db_table for model in some or models)
    with connection.cursor() as cursor:
        there = tables & set(connection.introspection.table_names(cursor))
        return [table for table in sorted(there) if _is_filled(cursor, table)]


def _is_filled(cursor: Any, table: str) -> bool:
    cursor.execute(f'SELECT EXISTS (SELECT FROM "{table}")')
    return bool(cursor.fetchone()[0])


def fill(database: psycopg.Connection, table: str, rows: int) -> None:
    """Copy one row of the table until it has `rows` rows."""
    columns = database.execute(COLUMNS, [table]).fetchall()
    name = sql.Identifier
    values: list[sql.Composable] = []
    for column, kind, is_unique in columns:
        values.append(name(column))
        if is_unique:
            other = sql.SQL(OTHERS[kind]).format(name=name(column))
            values[-1] = sql.SQL("CASE WHEN {name} IS NOT NULL THEN {other} END").format(name=name(column), other=other)
    database.execute("SET session_replication_role = replica")
    database.execute(
        sql.SQL("INSERT INTO {table} ({columns}) SELECT {values} FROM {row}, generate_series(1, {rows}) n").format(
            table=name(table),
            columns=sql.SQL(", ").join([name(column) for column, *_ in columns]),
            values=sql.SQL(", ").join(values),
            row=sql.SQL("(SELECT * FROM {} LIMIT 1) one").format(name(table)),
            rows=rows - 1,
        )
    )
    database.execute(sql.SQL("ANALYZE {}").format(name(table)))


@contextmanager
def sampled() -> Iterator[dict[str, float]]:
    """Yield the longest lock of each table in seconds, complete when the block ends."""
    longest: dict[str, float] = {}
    over = threading.Event()

    def sample() -> None:
        since: dict[tuple[str, int, str], float] = {}
        with superuser() as database:
            while not over.wait(SAMPLE_SEC):
                now = time.monotonic()
                held: Collection[Any] = database.execute(LOCKS).fetchall()
                since = {each: since.get(each, now) for each in held}
                for (table, *_), start in since.items():
                    longest[table] = max(longest.get(table, 0.0), now - start + SAMPLE_SEC)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield longest
    finally:
        over.set()
        sampler.join()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
