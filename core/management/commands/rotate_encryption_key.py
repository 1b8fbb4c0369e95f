from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from core.commands import OurCommand
from core.rotation import BATCH, encrypted_columns, rotate
from core.text import counted


class Command(OurCommand):
    help = (
        "Re-encrypt all stored secrets under the first of ENCRYPTION_KEYS. Safe while Pulsekeeper runs, and can "
        "be repeated. See docs/operate/operations.md."
    )
    epilog = """\
exit codes:
  0  everything is encrypted under the first key
  1  no key decrypts some of the rows
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--batch", type=int, default=BATCH, help=f"rows per transaction (default {BATCH})")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["batch"] < 1:
            raise CommandError("--batch must be 1 or more", returncode=2)
        unreadable = 0
        self.stdout.write(counted(len(settings.ENCRYPTION_KEYS), "key"))
        for column in encrypted_columns():
            done = rotate(column, batch=options["batch"])
            self.stdout.write(
                f"{column}: {done.reencrypted} re-encrypted, {done.current} already current, "
                f"{len(done.unreadable)} cannot be decrypted"
            )
            if done.unreadable:
                unreadable += len(done.unreadable)
                self.stderr.write(f"{column}: no key decrypts the rows {', '.join(map(str, done.unreadable))}")
        if unreadable:
            raise CommandError(f"cannot decrypt {counted(unreadable, 'row')}; keep the old keys, or add the missing")
