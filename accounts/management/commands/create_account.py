from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.services import create_account
from core.errors import ValidationFailed


class Command(BaseCommand):
    help = "Create an account. Example: manage.py create_account --email me@example.com --password ... --plan pro"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="login name of the account")
        parser.add_argument("--password", required=True, help="at least 8 characters, not a common one")
        parser.add_argument("--plan", default="free", help="name of a plan: free (default) or pro")
        parser.add_argument("--staff", action="store_true", help="may sign in to the admin, with every right")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = create_account(
                email=options["email"],
                password=options["password"],
                plan=options["plan"],
                is_staff=options["staff"],
                is_superuser=options["staff"],
            )
        except ValidationFailed as error:
            raise CommandError(str(error.reason)) from None
        self.stdout.write(f"created {user.email} on plan {user.plan.name}")
