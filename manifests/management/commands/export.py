"""`manage.py export --account EMAIL`: write an account as a file for `manage.py apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.clock import utc_now
from core.errors import NotFound
from core.files import replaced
from manifests.commands import EXIT_REFUSED, PipelineCommand, account_of
from manifests.exporting import export
from manifests.yaml_writer import write


class Command(PipelineCommand):
    help = "Export an account as YAML for `manage.py apply`, without secrets."
    epilog = """\
examples:
  manage.py export --account me@example.com > pulsekeeper.yaml
  manage.py export --account me@example.com --project prj_abc --output shop.yaml

exit codes:
  0  written
  2  wrong usage, unknown account or project, or the file cannot be written
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", required=True, metavar="EMAIL", help="the account to export")
        parser.add_argument("--project", metavar="ID", help="export only this project")
        parser.add_argument("--ids", action="store_true", help="include all ids, to rename or move objects")
        parser.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="write JSON, which is YAML too")

    def handle(self, *, account: str, **options: Any) -> None:
        try:
            document = export(
                account_of(account), project_id=options["project"], with_ids=options["ids"], now=utc_now()
            )
        except NotFound as error:
            raise CommandError(str(error), returncode=EXIT_REFUSED) from None
        text = write(document, as_json=options["as_json"])
        if options["output"] is None:
            self.stdout.write(text, ending="")
            return
        try:
            with replaced(Path(options["output"])) as file:
                file.write(text)
        except OSError as error:
            raise CommandError(f"{options['output']}: {error.strerror}", returncode=EXIT_REFUSED) from None
