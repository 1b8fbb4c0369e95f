from __future__ import annotations

from django.core.management.base import CommandParser

from accounts.management.commands import create_account


class Command(create_account.Command):
    """Replaces Django's command, because an account needs a plan and a confirmed address."""

    help = "Creates a staff account: the same as create_account --staff."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(staff=True)
