"""The bases of our management commands: help with examples, and one exit code for an unreachable database."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError

from core import cli


class OurCommand(BaseCommand):
    """A command with an `epilog` like that of `cli.Command`.

    argparse exits with 2 for a usage error, and so does a command that finds it later.
    """

    epilog = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": self.epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (OperationalError, InterfaceError, ProgrammingError) as error:
            problem = "is not migrated" if isinstance(error, ProgrammingError) else "does not answer"
            first_line = str(error).partition("\n")[0]
            raise CommandError(f"the database {problem}: {first_line}", returncode=cli.EXIT_UNREACHABLE) from error


class SharedCommand(OurCommand):
    """A command that `pulsekeeper` has too."""

    shared: cli.Command
    requires_system_checks = ()  # system checks concern the whole site, and need a database

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        self.help = self.shared.help
        self.epilog = self.shared.epilog.replace("{prog}", f"manage.py {subcommand}")
        if self.shared.usage_code != cli.EXIT_USAGE:
            self._called_from_command_line = False  # raises CommandError on usage error; argparse would exit with 2
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        self.shared.add_arguments(parser)

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except (CommandError, cli.CommandFailed) as error:  # from the parser; super() handles those of `handle`
            message = self.shared.explain(str(error).removeprefix("Error: "))
            self.stderr.write(f"CommandError: {message}")
            sys.exit(self.shared.usage_code)

    def handle(self, *args: Any, **options: Any) -> None:
        cli.use_utf8(sys.stdout)
        try:
            code = self.shared.run(options, out=self.stdout, err=self.stderr)
        except cli.CommandFailed as error:
            raise CommandError(self.shared.explain(str(error)), returncode=error.code) from error
        if code:
            sys.exit(code)
