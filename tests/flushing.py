"""Empty the database quickly after each transactional test: most tests use only a few tables.

TRUNCATE creates new files for every table and index, even for empty ones. Django would also rewrite content types and
permissions each time, which no test needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.contenttypes.management import create_contenttypes
from django.db import connection
from django.db.models.signals import post_migrate

# Truncate large tables, as deleted rows stay in the files. That comes first: PostgreSQL truncates no table while
# deferred checks of its deleted rows are pending. Then two rounds of deletions, as a trigger records them.
_EMPTY = """
DO $$
DECLARE
    name text;
    filled boolean;
BEGIN
    FOR round IN 0..2 LOOP
        FOREACH name IN ARRAY ARRAY[{names}] LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO filled;
            IF filled AND round = 0 AND (pg_table_size(quote_ident(name)) > 1000000 OR EXISTS (
                SELECT FROM pg_partitioned_table WHERE partrelid = quote_ident(name)::regclass)) THEN
                EXECUTE format('TRUNCATE %I CASCADE', name);
            ELSIF filled AND round > 0 THEN
                EXECUTE format('DELETE FROM %I', name);
            END IF;
        END LOOP;
    END LOOP;
END $$
"""


# Rows of the migrations of accounts and locations, which non-transactional tests need.
_INSERT_PLANS = """
INSERT INTO accounts_plan (name, min_interval_sec, default_interval_sec, monitor_limit, location_limit)
VALUES ('free', 300, NULL, 50, 1), ('pro', 60, NULL, 1000, 10), ('local', 10, 60, NULL, NULL)
"""
_INSERT_LOCATION = """
INSERT INTO locations_location (public_id, created_at, name, preselected) VALUES ('default', now(), '', true)
"""


def flush_by_deleting() -> None:
    """Replace Django's flush in this process. Foreign keys are deferred, so the order of tables does not matter."""

    def sql_flush(self: Any, style: Any, tables: Sequence[str], **options: bool) -> list[str]:
        plans = [_INSERT_PLANS] if "accounts_plan" in tables else []
        locations = [_INSERT_LOCATION] if "locations_location" in tables else []
        return [_EMPTY.format(names=", ".join(f"'{table}'" for table in tables)), *plans, *locations]

    type(connection.ops).sql_flush = sql_flush  # type: ignore[method-assign]
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    post_migrate.disconnect(create_contenttypes)
