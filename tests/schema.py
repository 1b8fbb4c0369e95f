"""Compare schemas and numbers of rows of databases."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

SCHEMA = """
WITH ours AS (
    SELECT oid, relname::text AS name FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
)
SELECT name, attname::text, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity,
                                      pg_get_expr(adbin, adrelid))
  FROM pg_attribute JOIN ours ON ours.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 WHERE attnum > 0 AND NOT attisdropped
 UNION ALL
SELECT name, indexname, indexdef FROM pg_indexes JOIN ours ON name = tablename WHERE schemaname = current_schema()
 UNION ALL
SELECT name, conname, pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint JOIN ours ON ours.oid = conrelid
"""


def schema_of(cursor: Any) -> set[tuple[str, str, str]]:
    """Return table, name and definition of all columns, indexes and constraints, without partitions."""
    cursor.execute(SCHEMA)
    return set(cursor.fetchall())


def rows_of(cursor: Any, apps: Collection[str]) -> dict[str, int]:
    """Return how many rows each table of the apps has."""
    cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    tables = [name for (name,) in cursor.fetchall() if name.split("_")[0] in apps]
    cursor.execute(" UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables))
    return dict(cursor.fetchall())
