from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS

from checks.results import moving
from core import cli, metrics
from core.clock import utc_now
from core.commands import OurCommand
from core.postgresql import HISTORY


class Command(OurCommand):
    help = (
        "Moves packed results, their reasons and roll-ups from the main database to that of HISTORY_DATABASE_URL, or "
        "back. Can be repeated when it was interrupted. See docs/operate/operations.md."
    )
    epilog = """\
examples:
  manage.py move_history --ahead    while all processes run, with HISTORY_DATABASE_URL for this command only
  manage.py move_history            after all processes were stopped; they start with HISTORY_DATABASE_URL
  manage.py move_history --back     after all processes were stopped; they start without it

exit codes:
  0  moved, or copied
  1  refused: processes run, or the databases have different results of the same time
  2  usage error: HISTORY_DATABASE_URL is not set, or names the main database
  4  a database cannot be reached; repeat the command
"""
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--ahead", action="store_true", help="copy only, and only days and months that are over")
        what.add_argument("--back", action="store_true", help="move everything back to the main database")

    def handle(self, *args: Any, ahead: bool, back: bool, **options: Any) -> None:
        if HISTORY not in settings.DATABASES:
            raise CommandError("HISTORY_DATABASE_URL is not set", returncode=cli.EXIT_USAGE)
        if not ahead:
            _require_no_process()
        try:
            with ExitStack() as stack:
                source, target, *locks = (
                    stack.enter_context(moving.opened(alias)) for alias in (DEFAULT_DB_ALIAS, HISTORY) * 2
                )
                if moving.is_same(source, target):
                    raise CommandError("both addresses name the same database", returncode=cli.EXIT_USAGE)
                if back:
                    source, target = target, source
                with moving.locked(*locks, ahead=ahead):
                    move = moving.Move(source, target, self._report)
                    if ahead:
                        move.copy_closed(utc_now())
                    else:
                        move.finish(lambda: [lock.execute("SELECT") for lock in locks])
        except moving.MoveRefused as error:
            raise CommandError(str(error)) from None
        except psycopg.errors.UndefinedTable as error:
            raise CommandError(f"a database is not migrated: {error}", returncode=cli.EXIT_UNREACHABLE) from error
        except psycopg.OperationalError as error:
            raise CommandError(f"a database does not answer: {error}", returncode=cli.EXIT_UNREACHABLE) from error
        if ahead:
            self._report("Copied. To move the rest, stop all processes and run `manage.py move_history`.")
        else:
            self._report(f"Moved. Start all processes {'without' if back else 'with'} HISTORY_DATABASE_URL.")

    def _report(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _require_no_process() -> None:
    try:
        alive = [kind for kind, found in metrics.read_processes().items() if found.alive]
    except redis.RedisError:
        return  # none works without the broker
    if alive:
        raise CommandError(f"processes run, or ended less than 10 s ago: {', '.join(sorted(alive))}; stop them first")
