from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.models import User
from core.commands import OurCommand
from signin.operator_links import create_link


class Command(OurCommand):
    help = "Prints a link that signs in to an account once, within ten minutes: for when the OpenID provider is away."
    epilog = """\
example:
  manage.py sign_in_link me@example.com

exit codes:
  0  the link was printed
  1  the account does not exist, or is deactivated
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="e-mail address of the account")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
        if user is None:
            raise CommandError(f"{email} is not the address of an active account")
        self.stdout.write(create_link(user))
