from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.core.management.commands import migrate


class Command(migrate.Command):
    """Django's command, which migrates the database of HISTORY_DATABASE_URL too unless one is named."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(database=None)

    def execute(self, *args: Any, **options: Any) -> str | None:
        named = options["database"]
        for alias in [named] if named else settings.DATABASES:
            if alias != "default":
                self.stdout.write(f"Database {alias}:")
            super().execute(*args, **options | {"database": alias})
        return None
