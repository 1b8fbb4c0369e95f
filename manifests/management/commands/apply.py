"""`manage.py apply FILE --account EMAIL`: have an account be as a file says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.clock import utc_now
from manifests.applying import apply
from manifests.changes import Report
from manifests.commands import EXIT_CHANGES, EXIT_REFUSED, PipelineCommand, account_of
from manifests.parsing import parse
from manifests.problems import Refused
from manifests.reading import MAX_BYTES, read


class Command(PipelineCommand):
    help = "Makes an account what a YAML file says: projects, monitors, channels, windows, status pages."
    epilog = """\
examples:
  manage.py apply pulsekeeper.yaml --account me@example.com --dry-run
  manage.py apply pulsekeeper.yaml --account me@example.com --prune
  manage.py export --account me@example.com | manage.py apply - --account me@example.com --dry-run

Everything is done, or nothing. What is in the file is made, or changed to be as it says; what is not in it stays,
unless --prune is given: then what the file is in charge of goes (docs/use/configuration-as-code.md).

exit codes:
  0  done, or nothing to do
  2  nothing is changed: the file is refused, with every reason and its line, or no such option, account or file
  3  with --detailed-exitcode: done, and there were changes (with --dry-run: there would be)
  4  nothing is changed: the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML; - is standard input")
        parser.add_argument("--account", required=True, metavar="EMAIL", help="whose, and who does it")
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would change, and change nothing"
        )
        parser.add_argument(
            "--prune", action="store_true", help="delete what the file is in charge of and not in it"
        )
        parser.add_argument(
            "--detailed-exitcode",
            action="store_true",
            help=f"exit with {EXIT_CHANGES} where there are changes",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, *, file: str, account: str, **options: Any) -> None:
        user = account_of(account)
        try:
            report = apply(
                parse(read(_bytes_of(file)), os.environ),
                user,
                prune=options["prune"],
                dry_run=options["dry_run"],
                now=utc_now(),
            )
        except Refused as error:
            self._refuse(error, "standard input" if file == "-" else file, as_json=options["as_json"])
        show = self._show_json if options["as_json"] else self._show
        show(report, dry_run=options["dry_run"])
        if options["detailed_exitcode"] and report.changes:
            sys.exit(EXIT_CHANGES)

    def _refuse(self, error: Refused, file: str, *, as_json: bool) -> None:
        if as_json:
            problems = [problem.as_json() for problem in error.problems]
            self.stdout.write(json.dumps({"applied": False, "problems": problems}, ensure_ascii=False))
        else:
            self.stderr.write("\n".join(problem.told(file) for problem in error.problems))
            count = len(error.problems)
            self.stderr.write(f"{count} {'problem' if count == 1 else 'problems'}; nothing is changed.")
        sys.exit(EXIT_REFUSED)

    def _show(self, report: Report, *, dry_run: bool) -> None:
        for change in report.changes:
            self.stdout.write("\n".join(change.lines()))
        for note in report.notes:
            self.stdout.write(f"note: line {note.mark.line}: {note.path}: {note.message}")
        if report.unmentioned:
            self.stdout.write(f"note: {report.unmentioned} not in the file; --prune would delete them.")
        verb = "to create, {} to change, {} to delete" if dry_run else "created, {} changed, {} deleted"
        counts = [report.count(action) for action in ("create", "update", "delete")]
        self.stdout.write(("{} " + verb + ".").format(*counts) if report.changes else "Nothing to change.")
        if report.first_checks and not dry_run:
            come = "first check comes" if report.first_checks == 1 else "first checks come"
            self.stdout.write(f"{report.first_checks} {come} with the scheduler's next tick.")

    def _show_json(self, report: Report, *, dry_run: bool) -> None:
        found = {
            "applied": not dry_run,
            "created": report.count("create"),
            "changed": report.count("update"),
            "deleted": report.count("delete"),
            "unmentioned": report.unmentioned,
            "first_checks": report.first_checks,
            "changes": [change.as_json() for change in report.changes],
            "notes": [note.as_json() for note in report.notes],
        }
        self.stdout.write(json.dumps(found, ensure_ascii=False))


def _bytes_of(file: str) -> bytes:
    """At most one more than is taken: what is larger is refused for that."""
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", returncode=EXIT_REFUSED) from None
