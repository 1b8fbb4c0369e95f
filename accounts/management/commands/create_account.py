from __future__ import annotations

import getpass
import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.services import create_account
from core.commands import OurCommand
from core.errors import ValidationFailed


class Command(OurCommand):
    help = "Creates an account."
    epilog = """\
example:
  manage.py create_account --email me@example.com --plan pro

exit codes:
  0  the account was created
  1  refused: the address is taken, the password is too weak, or the plan does not exist
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="login name of the account")
        password = parser.add_mutually_exclusive_group()
        password.add_argument(
            "--password",
            help="at least 8 characters, not a common one. Other users of the machine can read arguments: if omitted, "
            "the command asks for it, or reads a line of standard input",
        )
        password.add_argument("--no-password", action="store_true", help="the account signs in with another service")
        parser.add_argument("--plan", default="free", help="name of a plan: free (default), pro or local")
        parser.add_argument("--staff", action="store_true", help="may sign in to the admin, with all permissions")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        password = options["password"]
        if password is None and not options["no_password"]:
            password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
        try:
            user = create_account(
                email=options["email"],
                password=password,
                plan=options["plan"],
                is_staff=options["staff"],
                is_superuser=options["staff"],
            )
        except ValidationFailed as error:
            raise CommandError(str(error.reason)) from None
        if options["as_json"]:
            self.stdout.write(json.dumps({"email": user.email, "plan": user.plan.name, "staff": user.is_staff}))
        else:
            self.stdout.write(f"created {user.email} on plan {user.plan.name}")
