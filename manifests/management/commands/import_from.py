"""`manage.py import_from SOURCE FILE`: import monitors from another product."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from checks.evidence import Mask, shown_url
from core.clock import utc_now
from core.errors import MonitorLimit, ValidationFailed
from core.text import printable
from manifests.commands import EXIT_REFUSED, PipelineCommand, account_of
from manifests.importers import gatus, healthchecks, uptime_kuma, uptimerobot
from manifests.importers.creating import Imported, Outcome, import_monitors
from manifests.importers.mapped import MappedMonitor, UnreadableFileError
from projects.access import Caller

EXIT_LEFT_OUT, EXIT_NO_ROOM = 1, 3
MAX_FILE = 20 * 1024 * 1024

SOURCES: dict[str, Callable[[str], list[MappedMonitor]]] = {
    "uptime-kuma": uptime_kuma.read,
    "healthchecks": healthchecks.read,
    "uptimerobot": uptimerobot.read,
    "gatus": gatus.read,
}

_EPILOG = """\
files:
  uptime-kuma   a backup as JSON (version 1), or the list of monitors of version 2
  healthchecks  the answer to GET /api/v3/checks/
  uptimerobot   the answer to getMonitors (v2) or to GET /monitors (v3)
  gatus         its configuration as YAML

All supported monitors are created in one transaction. Importing the same file again creates no duplicates. The output
lists what was changed or skipped, by monitor and field. It has names, URLs and intervals, but never values of headers.

example:
  manage.py import_from uptime-kuma Uptime_Kuma_Backup.json --account me@example.com --dry-run

exit codes:
  0  all monitors of the file exist now (with --dry-run: would exist)
  1  some were skipped; the others exist now
  2  wrong usage, unknown account or project, or the file cannot be read
  3  nothing was created: the plan's limit would be exceeded
  4  the database cannot be reached
"""


class Command(PipelineCommand):
    help = "Create monitors from an export of another product, and list what could not be imported."
    epilog = _EPILOG

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=SOURCES, help="product that exported the file")
        parser.add_argument("file", metavar="FILE", type=Path, help="the exported file")
        parser.add_argument("--account", required=True, metavar="EMAIL", help="account that gets the monitors")
        parser.add_argument("--project", metavar="ID", help="project for the monitors")
        parser.add_argument("--dry-run", action="store_true", help="show what would be created without creating it")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(
        self, *, source: str, file: Path, account: str, project: str | None, dry_run: bool, as_json: bool, **_: Any
    ) -> None:
        place = {} if project is None else {"project_id": project}
        try:
            mapped = SOURCES[source](_read_text(file))
            imported = import_monitors(Caller(account_of(account)), mapped, place=place, now=utc_now(), dry_run=dry_run)
        except UnreadableFileError as error:
            raise CommandError(f"{file}: {error}", returncode=EXIT_REFUSED) from None
        except ValidationFailed:  # unknown project; errors of single monitors are notes
            raise CommandError(f"{account} has no project {project}", returncode=EXIT_REFUSED) from None
        except MonitorLimit as error:
            problem = f"nothing was created: these exceed the plan's limit of {error.limit} monitors"
            raise CommandError(problem, returncode=EXIT_NO_ROOM) from None
        counts = {outcome.value: sum(each.outcome is outcome for each in imported) for outcome in Outcome}
        if as_json:
            monitors = [_as_json(each, dry_run=dry_run) for each in imported]
            found = {"dry_run": dry_run, "counts": counts, "monitors": monitors}
            self.stdout.write(json.dumps(found, ensure_ascii=False, indent=2))
        else:
            created = "would be created" if dry_run else "created"
            lines = [line for each in imported for line in _lines(each, dry_run=dry_run)]
            total = f"{counts['created']} {created}, {counts['existing']} existing, {counts['skipped']} skipped"
            self.stdout.write("\n".join([*lines, total]))
        if counts["skipped"]:
            sys.exit(EXIT_LEFT_OUT)


def _read_text(path: Path) -> str:
    """Read a file. Raises UnreadableFileError."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise UnreadableFileError("is too large")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableFileError("is not UTF-8 text") from None


def _ping_url(each: Imported, *, dry_run: bool) -> str | None:
    """Return the ping URL of a new heartbeat, or None."""
    if each.monitor is None or not each.monitor.kind.waits or dry_run:
        return None
    return f"{settings.BASE_URL}/v1/heartbeats/{each.monitor.public_id}/ping"


def _lines(each: Imported, *, dry_run: bool) -> Iterator[str]:
    """Yield the lines about one monitor of the file."""
    about = ""
    if (monitor := each.monitor) is not None:
        where = shown_url(monitor.url, Mask(())) if monitor.url else ""
        shown = [monitor.type, where, f"every {monitor.interval_sec} s"]
        about = f" ({', '.join(filter(None, shown))})" + ("" if dry_run else f" {monitor.public_id}")
    would_be = "WOULD BE " if dry_run and each.outcome is Outcome.CREATED else ""
    yield f"{would_be}{each.outcome.upper()} {printable(each.name)}{about}"
    if ping_url := _ping_url(each, dry_run=dry_run):
        yield f"  ping: {ping_url}"
    yield from (f"  {note.field}: {printable(note.text)}" for note in each.notes)


def _as_json(each: Imported, *, dry_run: bool) -> dict[str, Any]:
    return {
        "name": each.name,
        "outcome": each.outcome.value,
        "id": None if each.monitor is None or dry_run else each.monitor.public_id,
        "ping_url": _ping_url(each, dry_run=dry_run),
        "notes": [asdict(note) for note in each.notes],
    }
