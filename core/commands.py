"""The base of our management commands: help with examples, and one exit code for an unreachable database."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError

EXIT_UNREACHABLE = 4


class OurCommand(BaseCommand):
    """A command whose `epilog`, printed unchanged, has examples and a table `exit codes:`.

    `docs/use/commands.md` has the same table; a test compares the two. argparse exits with 2 for wrong use, and so does
    a command that finds it later.
    """

    epilog = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": self.epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (OperationalError, InterfaceError) as error:
            problem = f"the database does not answer: {_first_line(error)}"
            raise CommandError(problem, returncode=EXIT_UNREACHABLE) from error
        except ProgrammingError as error:
            problem = f"the database is not migrated: {_first_line(error)}"
            raise CommandError(problem, returncode=EXIT_UNREACHABLE) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
