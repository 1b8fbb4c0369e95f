"""`manage.py apply FILE --account EMAIL`: make an account match a YAML file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.clock import utc_now
from manifests.applying import apply
from manifests.changes import Report
from manifests.commands import EXIT_CHANGES, EXIT_REFUSED, PipelineCommand, account_of
from manifests.parsing import parse
from manifests.problems import InvalidManifest
from manifests.yaml_reader import MAX_BYTES, read


class Command(PipelineCommand):
    help = "Make an account match a YAML file: projects, monitors, channels, windows, status pages."
    epilog = """\
examples:
  manage.py apply pulsekeeper.yaml --account me@example.com --dry-run
  manage.py apply pulsekeeper.yaml --account me@example.com --prune
  manage.py export --account me@example.com | manage.py apply - --account me@example.com --dry-run

All changes are one transaction. Entries of the file are created or updated; everything else stays.
With --prune, what the file manages but does not list is deleted (docs/use/configuration-as-code.md).

exit codes:
  0  applied, or nothing to change
  2  nothing changed: the file has problems, which are listed with lines, or wrong usage
  3  with --detailed-exitcode: there were changes (with --dry-run: there would be)
  4  nothing changed: the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML; - is standard input")
        parser.add_argument("--account", required=True, metavar="EMAIL", help="the account to change")
        parser.add_argument("--dry-run", action="store_true", help="show what would change without changing it")
        parser.add_argument("--prune", action="store_true", help="delete what the file manages but does not list")
        parser.add_argument(
            "--detailed-exitcode", action="store_true", help=f"exit with {EXIT_CHANGES} if there are changes"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, *, file: str, account: str, **options: Any) -> None:
        user = account_of(account)
        try:
            report = apply(
                parse(read(_read_file(file)), os.environ),
                user,
                prune=options["prune"],
                dry_run=options["dry_run"],
                now=utc_now(),
            )
        except InvalidManifest as error:
            self._report_problems(error, "standard input" if file == "-" else file, as_json=options["as_json"])
        show = self._show_json if options["as_json"] else self._show
        show(report, dry_run=options["dry_run"])
        if options["detailed_exitcode"] and report.changes:
            sys.exit(EXIT_CHANGES)

    def _report_problems(self, error: InvalidManifest, file: str, *, as_json: bool) -> None:
        if as_json:
            problems = [problem.as_json() for problem in error.problems]
            self.stdout.write(json.dumps({"applied": False, "problems": problems}, ensure_ascii=False))
        else:
            self.stderr.write("\n".join(problem.format(file) for problem in error.problems))
            count = len(error.problems)
            self.stderr.write(f"{count} {'problem' if count == 1 else 'problems'}; nothing was changed.")
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
            come = "first check runs" if report.first_checks == 1 else "first checks run"
            self.stdout.write(f"{report.first_checks} {come} with the next tick of the scheduler.")

    def _show_json(self, report: Report, *, dry_run: bool) -> None:
        found = {
            "applied": not dry_run,
            "created": report.count("create"),
            "changed": report.count("update"),
            "deleted": report.count("delete"),
            "unmentioned": report.unmentioned,
            "first_checks": report.first_checks,
            "changes": [asdict(change) for change in report.changes],
            "notes": [note.as_json() for note in report.notes],
        }
        self.stdout.write(json.dumps(found, ensure_ascii=False))


def _read_file(file: str) -> bytes:
    """Read at most one byte more than the limit, so that `read` rejects a larger file."""
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", returncode=EXIT_REFUSED) from None
