"""`manage.py run -- COMMAND`: run a job and report it to its heartbeat, without a database and Django's settings."""

from __future__ import annotations

import sys

from django.core.management.base import CommandError

from core.commands import SharedCommand
from pulsekeeper.run.command import Run


class Command(SharedCommand):
    shared = Run()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run without Django's settings, which BaseCommand needs for its database connections."""
        try:
            self.handle(**vars(self.create_parser(argv[0], argv[1]).parse_args(argv[2:])))
        except CommandError as error:
            self.stderr.write(f"run: {self.shared.explain(str(error).removeprefix('Error: '))}")
            sys.exit(self.shared.usage_code)
        sys.exit(0)  # manage.py must not go on to set up Django
