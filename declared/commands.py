"""What the commands of this app share: exit codes, and who they are for."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from accounts.models import User

EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, EXIT_CHANGES = 1, 2, 3, 4


class PipelineCommand(BaseCommand):
    """One for pipelines: bad usage ends with EXIT_USAGE, and a database that is away with EXIT_FAILED."""

    requires_system_checks = ()
    epilog = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Bad usage becomes a CommandError, and `run_from_argv` makes our exit code of it: argparse's own is 2.
        self._called_from_command_line = False
        return super().create_parser(
            prog_name,
            subcommand,
            epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **kwargs,
        )

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except CommandError as error:  # from the parser; those of handle are turned into exits by Django
            self.stderr.write(f"CommandError: {str(error).removeprefix('Error: ')}")
            sys.exit(EXIT_USAGE)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except OperationalError as error:
            message = f"the database does not answer, and nothing is changed: {str(error).strip()}"
            raise CommandError(message, returncode=EXIT_FAILED) from None


def account_of(email: str) -> User:
    user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"there is no account {email}", returncode=EXIT_USAGE)
    return user
