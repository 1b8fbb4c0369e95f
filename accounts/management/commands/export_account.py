from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.export import export
from accounts.models import User
from core.clock import utc_now
from core.commands import OurCommand
from core.files import replaced


class Command(OurCommand):
    help = "Writes everything that is stored about an account to one JSON file, as GET /v1/account/export does."
    epilog = """\
example:
  manage.py export_account me@example.com --output me.json

exit codes:
  0  written
  1  the account does not exist, or the file exists or cannot be written
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="e-mail address of the account")
        parser.add_argument("--output", type=Path, metavar="FILE", help="instead of standard output")
        parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")

    def handle(self, *args: Any, email: str, output: Path | None, overwrite: bool, **options: Any) -> None:
        user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
        if user is None:
            raise CommandError(f"account {email} not found")
        if output is None:
            for piece in export(user, now=utc_now()):
                self.stdout.write(piece, ending="")
            return
        taken = CommandError(f"{output} exists; use --overwrite to replace it")
        if output.exists() and not overwrite:  # check before reading all data
            raise taken
        try:
            # Only its owner can read it: the file has personal data.
            with replaced(output, mode=0o600, overwrite=overwrite) as file:
                file.writelines(export(user, now=utc_now()))
        except FileExistsError:
            raise taken from None
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}") from None
        self.stderr.write(f"{output}: written")
