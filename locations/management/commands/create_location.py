from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from core.clock import utc_now
from core.commands import OurCommand
from core.errors import ApiError
from locations.services import TOKEN_LIFETIME, create_shared, issue_shared


class Command(OurCommand):
    help = "Creates a location for all accounts, and issues join tokens for its agents."
    epilog = """\
examples:
  manage.py create_location fra --name Frankfurt
  manage.py create_location fra --join-token

exit codes:
  0  the join token was printed
  1  refused: the id is taken or not valid, or the shared location does not exist
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="1 to 40 of a-z, 0-9 and -")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--name", help="its name, up to 100 characters")
        what.add_argument("--join-token", action="store_true", help="issue another token for an existing location")

    def handle(self, *args: Any, **options: Any) -> None:
        now, public_id = utc_now(), options["id"]
        try:
            if options["join_token"]:
                token = issue_shared(public_id, now=now)
            else:
                location, token = create_shared(public_id, name=options["name"], now=now)
                self.stdout.write(f"created location {public_id} ({location})")
        except ApiError as error:
            raise CommandError(error.reason) from None
        self.stdout.write(f"join token {token}")
        self.stdout.write(f"valid for one agent, until {now + TOKEN_LIFETIME:%Y-%m-%d %H:%M:%S} UTC")
        self.stdout.write(f"pulsekeeper agent --server {settings.BASE_URL} --join {token}")
