"""`manage.py import_from SOURCE FILE`: monitors of another service, taken over as far as they can be."""

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
from manifests.importers.creating import Fate, Imported, import_monitors
from manifests.importers.mapped import Mapped, UnreadableFileError
from monitors.configuration import MonitorType
from monitors.models import Monitor
from projects.access import Caller

EXIT_LEFT_OUT, EXIT_USAGE, EXIT_NO_ROOM = 1, 2, 3
MAX_FILE = 20 * 1024 * 1024

SOURCES: dict[str, Callable[[str], list[Mapped]]] = {
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

All that can be taken over is created in one transaction, or nothing; the same file again creates nothing twice. What is
lost on the way is told, by monitor and by field. Names, addresses and intervals are printed, values of headers never.

example:
  manage.py import_from uptime-kuma Uptime_Kuma_Backup.json --account me@example.com --dry-run

exit codes:
  0  all monitors of the file are here now (with --dry-run: would be)
  1  some were left out; the others are here now
  2  wrong use: no such option, account, project or file, or a file that is not what it should be
  3  nothing was created: the plan has no room for all
  4  the database cannot be reached
"""


class Command(OurCommand):
    help = "Creates monitors from what another service exports, and says what could not be taken over."
    epilog = _EPILOG
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=SOURCES, help="where the file is from")
        parser.add_argument("file", metavar="FILE", type=Path, help="what that service exported")
        parser.add_argument("--account", required=True, metavar="EMAIL", help="whose monitors they will be")
        parser.add_argument("--project", metavar="ID", help="put them into this project of that account")
        parser.add_argument("--dry-run", action="store_true", help="say what would be, and create nothing")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        place = {} if options["project"] is None else {"project_id": options["project"]}
        try:
            mapped = SOURCES[options["source"]](_text_of(options["file"]))
            imported = import_monitors(
                _caller(options["account"]), mapped, place=place, now=utc_now(), dry_run=options["dry_run"]
            )
        except UnreadableFileError as error:
            raise CommandError(f"{options['file']}: {error}", returncode=EXIT_USAGE) from None
        except ValidationFailed:  # of the place; what is wrong with one monitor is a note
            raise CommandError(
                f"{options['account']} has no project {options['project']}", returncode=EXIT_USAGE
            ) from None
        except MonitorLimit as error:
            raise CommandError(
                f"nothing was created: the plan has room for {error.limit} monitors, and these are more",
                returncode=EXIT_NO_ROOM,
            ) from None
        tell = _as_json if options["as_json"] else _as_text
        self.stdout.write(tell(imported, dry_run=options["dry_run"]))
        if any(each.fate is Fate.LEFT_OUT for each in imported):
            sys.exit(EXIT_LEFT_OUT)


def _text_of(path: Path) -> str:
    """Raises UnreadableFileError."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise UnreadableFileError("is larger than any such file")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableFileError("is no text in UTF-8") from None


def _caller(email: str) -> Caller:
    user = User.objects.filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"no account {email}", returncode=EXIT_USAGE)
    return Caller(user)


def _ping_url(each: Imported, *, dry_run: bool) -> str | None:
    """Where a new heartbeat waits for its pings."""
    if each.monitor is None or each.monitor.type != MonitorType.HEARTBEAT or dry_run:
        return None
    return f"{settings.BASE_URL}/v1/heartbeats/{each.monitor.public_id}/ping"


def _counts(imported: Sequence[Imported]) -> dict[str, int]:
    return {fate.value: sum(each.fate is fate for each in imported) for fate in Fate}


def _as_text(imported: Sequence[Imported], *, dry_run: bool) -> str:
    words = {
        Fate.CREATED: "WOULD BE CREATED" if dry_run else "CREATED",
        Fate.THERE: "THERE",
        Fate.LEFT_OUT: "LEFT OUT",
    }
    lines = []
    for each in imported:
        about = "" if each.monitor is None else _about(each.monitor, dry_run=dry_run)
        lines.append(f"{words[each.fate]} {printable(each.name)}{about}")
        if ping_url := _ping_url(each, dry_run=dry_run):
            lines.append(f"  ping: {ping_url}")
        lines += [f"  {note.field}: {printable(note.text)}" for note in each.notes]
    counts = _counts(imported)
    told = f"{counts['created']} {'would be created' if dry_run else 'created'}"
    return "\n".join([*lines, f"{told}, {counts['there']} there already, {counts['left out']} left out"])


def _about(monitor: Monitor, *, dry_run: bool) -> str:
    where = shown_url(monitor.url, Mask(())) if monitor.url else ""
    shown = [monitor.type, where, f"every {monitor.interval_sec} s"]
    return f" ({', '.join(filter(None, shown))})" + ("" if dry_run else f" {monitor.public_id}")


def _as_json(imported: Sequence[Imported], *, dry_run: bool) -> str:
    monitors = [
        {
            "name": each.name,
            "fate": each.fate.value,
            "id": None if each.monitor is None or dry_run else each.monitor.public_id,
            "ping_url": _ping_url(each, dry_run=dry_run),
            "notes": [{"field": note.field, "text": note.text} for note in each.notes],
        }
        for each in imported
    ]
    counts = {name.replace(" ", "_"): count for name, count in _counts(imported).items()}
    return json.dumps(
        {"dry_run": dry_run, "counts": counts, "monitors": monitors}, ensure_ascii=False, indent=2
    )
