"""What the commands of this app share: exit codes, and how they end."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError

from accounts.models import User

EXIT_REFUSED, EXIT_CHANGES, EXIT_UNREACHABLE = 2, 3, 4


class PipelineCommand(BaseCommand):
    """`epilog` comes after the options in --help. Wrong use ends with EXIT_REFUSED, which is argparse's own code."""

    requires_system_checks = ()  # of the whole site, which a file is not about
    epilog = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": self.epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (OperationalError, InterfaceError) as error:
            message = f"the database cannot be reached; nothing is changed: {str(error).strip()}"
            raise CommandError(message, returncode=EXIT_UNREACHABLE) from None


def account_of(email: str) -> User:
    user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"there is no account {email}", returncode=EXIT_REFUSED)
    return user
