from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.core.management.commands import migrate
from django.db import connection

from checks.results.database import fetch_history, is_separate

# The main database may have been restored from an older backup than the history.
_NEWEST_MONITOR = """
    SELECT max(monitor_id)
      FROM (
            SELECT max(monitor_id) AS monitor_id FROM checks_packedresults
             UNION ALL SELECT max(monitor_id) FROM checks_packedreasons
             UNION ALL SELECT max(monitor_id) FROM checks_hourlyrollup
           ) AS newest
"""
_RESERVE = """
    SELECT setval('monitors_monitor_id_seq', %(newest)s)
      FROM monitors_monitor_id_seq
     WHERE last_value < %(newest)s
"""


class Command(migrate.Command):
    """Django's command, which migrates the database of HISTORY_DATABASE_URL too unless one is named.

    After both, no new monitor gets the id of one in the history: it would show the results of another account.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(database=None)

    def execute(self, *args: Any, **options: Any) -> str | None:
        named = options["database"]
        for alias in [named] if named else settings.DATABASES:
            if alias != "default":
                self.stdout.write(f"Database {alias}:")
            super().execute(*args, **options | {"database": alias})
        is_whole = not (named or options["app_label"] or options["plan"] or options["check_unapplied"])
        if is_whole and is_separate():
            [(newest,)] = fetch_history(_NEWEST_MONITOR, [])
            with connection.cursor() as cursor:
                cursor.execute(_RESERVE, {"newest": newest})
        return None
