from __future__ import annotations

import secrets
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from accounts.models import User
from accounts.services import create_account
from core.clock import utc_now
from core.commands import OurCommand
from core.errors import ValidationFailed
from monitors.seeding import seed_history


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("must be 1 or more")
    return number


class Command(OurCommand):
    help = (
        "Creates monitors with history: results, hourly roll-ups and status changes, for benchmarks. The monitors are "
        "never checked. About 150,000 results a second, and 90 bytes each. Refused without DEBUG, unless confirmed."
    )
    epilog = """\
example, for a database of tests:
  manage.py seed_history --monitors 20 --days 7 --yes-this-is-not-production

exit codes:
  0  the monitors were created, with their history
  1  the account could not be created
  2  usage error, or this may be production
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--monitors", type=positive, required=True, help="how many")
        parser.add_argument("--days", type=positive, required=True, help="length of their history")
        parser.add_argument("--interval", type=positive, default=60, help="seconds between checks (default 60)")
        parser.add_argument("--email", default="seed@example.com", help="owner of the monitors; created if missing")
        parser.add_argument(
            "--yes-this-is-not-production", action="store_true", dest="sure", help="needed without DEBUG"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG and not options["sure"]:
            raise CommandError("this fills the database: confirm it with --yes-this-is-not-production", returncode=2)
        if not 1 <= options["interval"] <= 3600:
            raise CommandError("--interval must be 1 to 3600", returncode=2)
        seeded = seed_history(
            self._account(options["email"]),
            monitors=options["monitors"],
            days=options["days"],
            interval_sec=options["interval"],
            now=utc_now(),
        )
        self.stdout.write(f"{seeded.monitors} monitors, {seeded.results} results, {seeded.changes} status changes")
        if options["days"] > settings.RESULTS_KEPT_DAYS:
            self.stdout.write(
                f"Results older than RESULTS_KEPT_DAYS={settings.RESULTS_KEPT_DAYS} days go with the next run of "
                "checks.tasks.keep_partitions; their roll-ups stay."
            )

    def _account(self, email: str) -> User:
        found = User.objects.filter(email=email.strip().lower()).first()
        if found is not None:
            return found
        password = secrets.token_urlsafe(12)
        try:
            account = create_account(email=email, password=password, plan="pro")
        except ValidationFailed as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Account: {account.email}, password {password} (shown only now)")
        return account
