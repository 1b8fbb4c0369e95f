"""`manage.py import_from SOURCE FILE`: import monitors from another product."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from accounts.models import User
from checks.evidence import Mask, shown_url
from core.clock import utc_now
from core.commands import OurCommand
from core.errors import MonitorLimit, ValidationFailed
from core.text import printable
from manifests.importers import gatus, healthchecks, uptime_kuma, uptimerobot
from manifests.importers.creating import Imported, Outcome, import_monitors
from manifests.importers.mapped import MappedMonitor, UnreadableFileError
from monitors.models import Monitor
from projects.access import Caller

EXIT_LEFT_OUT, EXIT_USAGE, EXIT_NO_ROOM = 1, 2, 3
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


class Command(OurCommand):
    help = "Create monitors from an export of another product, and list what could not be imported."
    epilog = _EPILOG
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=SOURCES, help="product that exported the file")
        parser.add_argument("file", metavar="FILE", type=Path, help="the exported file")
        parser.add_argument("--account", required=True, metavar="EMAIL", help="account that gets the monitors")
        parser.add_argument("--project", metavar="ID", help="project for the monitors")
        parser.add_argument("--dry-run", action="store_true", help="show what would be created without creating it")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        place = {} if options["project"] is None else {"project_id": options["project"]}
        try:
            mapped = SOURCES[options["source"]](_read_text(options["file"]))
            imported = import_monitors(
                _caller(options["account"]), mapped, place=place, now=utc_now(), dry_run=options["dry_run"]
            )
        except UnreadableFileError as error:
            raise CommandError(f"{options['file']}: {error}", returncode=EXIT_USAGE) from None
        except ValidationFailed:  # unknown project; errors of single monitors are notes
            raise CommandError(
                f"{options['account']} has no project {options['project']}", returncode=EXIT_USAGE
            ) from None
        except MonitorLimit as error:
            raise CommandError(
                f"nothing was created: these exceed the plan's limit of {error.limit} monitors",
                returncode=EXIT_NO_ROOM,
            ) from None
        render = _as_json if options["as_json"] else _as_text
        self.stdout.write(render(imported, dry_run=options["dry_run"]))
        if any(each.outcome is Outcome.SKIPPED for each in imported):
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


def _caller(email: str) -> Caller:
    user = User.objects.filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"no account {email}", returncode=EXIT_USAGE)
    return Caller(user)


def _ping_url(each: Imported, *, dry_run: bool) -> str | None:
    """Return the ping URL of a new heartbeat, or None."""
    if each.monitor is None or not each.monitor.kind.waits or dry_run:
        return None
    return f"{settings.BASE_URL}/v1/heartbeats/{each.monitor.public_id}/ping"


def _counts(imported: Sequence[Imported]) -> dict[str, int]:
    return {outcome.value: sum(each.outcome is outcome for each in imported) for outcome in Outcome}


def _as_text(imported: Sequence[Imported], *, dry_run: bool) -> str:
    words = {
        Outcome.CREATED: "WOULD BE CREATED" if dry_run else "CREATED",
        Outcome.EXISTING: "EXISTING",
        Outcome.SKIPPED: "SKIPPED",
    }
    lines = []
    for each in imported:
        about = "" if each.monitor is None else _about(each.monitor, dry_run=dry_run)
        lines.append(f"{words[each.outcome]} {printable(each.name)}{about}")
        if ping_url := _ping_url(each, dry_run=dry_run):
            lines.append(f"  ping: {ping_url}")
        lines += [f"  {note.field}: {printable(note.text)}" for note in each.notes]
    counts = _counts(imported)
    created = f"{counts['created']} {'would be created' if dry_run else 'created'}"
    return "\n".join([*lines, f"{created}, {counts['existing']} existing, {counts['skipped']} skipped"])


def _about(monitor: Monitor, *, dry_run: bool) -> str:
    where = shown_url(monitor.url, Mask(())) if monitor.url else ""
    shown = [monitor.type, where, f"every {monitor.interval_sec} s"]
    return f" ({', '.join(filter(None, shown))})" + ("" if dry_run else f" {monitor.public_id}")


def _as_json(imported: Sequence[Imported], *, dry_run: bool) -> str:
    monitors = [
        {
            "name": each.name,
            "outcome": each.outcome.value,
            "id": None if each.monitor is None or dry_run else each.monitor.public_id,
            "ping_url": _ping_url(each, dry_run=dry_run),
            "notes": [{"field": note.field, "text": note.text} for note in each.notes],
        }
        for each in imported
    ]
    counts = _counts(imported)
    return json.dumps({"dry_run": dry_run, "counts": counts, "monitors": monitors}, ensure_ascii=False, indent=2)
