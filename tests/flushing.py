"""How the database is emptied after each test of transactions: there are hundreds, and most have touched a few tables.

TRUNCATE makes new files for every table and index, whether there was a row in it or not; and the content types and
permissions that Django writes again each time are for nobody here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.contenttypes.management import create_contenttypes
from django.db import connection
from django.db.models.signals import post_migrate

# What has grown is truncated, since deleted rows stay in the files. Twice, since a trigger notes what is deleted.
_EMPTY = """
DO $$
DECLARE
    name text;
    filled boolean;
BEGIN
    FOR round IN 1..2 LOOP
        FOREACH name IN ARRAY ARRAY[{names}] LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO filled;
            IF filled AND round = 1 AND (pg_table_size(quote_ident(name)) > 1000000 OR EXISTS (
                SELECT FROM pg_partitioned_table WHERE partrelid = quote_ident(name)::regclass)) THEN
                EXECUTE format('TRUNCATE %I CASCADE', name);
            ELSIF filled THEN
                EXECUTE format('DELETE FROM %I', name);
            END IF;
        END LOOP;
    END LOOP;
END $$
"""


def flush_by_deleting() -> None:
    """From now on, in this process. Foreign keys are deferred, so the order of the tables is of no matter."""

    def sql_flush(self: Any, style: Any, tables: Sequence[str], **options: bool) -> list[str]:
        return [_EMPTY.format(names=", ".join(f"'{table}'" for table in tables))]

    type(connection.ops).sql_flush = sql_flush  # type: ignore[method-assign]
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    post_migrate.disconnect(create_contenttypes)
