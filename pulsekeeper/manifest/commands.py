"""The commands apply, export and import: their arguments, output and exit codes. Plain Python.

A `Backend` does the work: `manifests.local` with the database, `pulsekeeper.manifest.remote` with a server's API.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from checks.evidence import shown_address
from core.cli import Command, CommandFailed, Output, UsageError
from core.files import replaced
from core.text import counted, printable
from pulsekeeper.importers import fetching
from pulsekeeper.importers.mapped import (
    Imported,
    MappedFile,
    Outcome,
    UnreadableFileError,
    combine,
    complete_addresses,
    decode,
)
from pulsekeeper.importers.sources import SOURCES
from pulsekeeper.manifest.changes import Report
from pulsekeeper.manifest.problems import Document, InvalidManifest
from pulsekeeper.manifest.yaml_reader import MAX_BYTES, read
from pulsekeeper.manifest.yaml_writer import write

EXIT_CHANGES = 3
EXIT_LEFT_OUT, EXIT_NO_ROOM = 1, 3
API_KEY = "UPTIMEROBOT_API_KEY"
MAX_FILE = 20 * 1024 * 1024


class NoRoomError(CommandFailed):
    def __init__(self, limit: int | None) -> None:
        problem = f"nothing was created: these exceed the plan's limit of {limit} monitors"
        super().__init__(problem, code=EXIT_NO_ROOM)


class Backend(ABC):
    """Access to an account. Raises CommandFailed."""

    example: ClassVar[str]
    """The arguments that choose the account, in examples."""
    private_networks: ClassVar[str]
    """How monitors in private networks can be allowed."""

    @abstractmethod
    def __init__(self, options: Mapping[str, Any]) -> None: ...

    @staticmethod
    @abstractmethod
    def add_arguments(parser: ArgumentParser) -> None: ...

    @abstractmethod
    def apply(self, document: Document, *, prune: bool, dry_run: bool) -> Report:
        """Apply all or nothing. Variables are those of the environment. Raises InvalidManifest with all problems."""

    @abstractmethod
    def export(self, *, project_id: str | None, with_ids: bool) -> dict[str, Any]: ...

    @abstractmethod
    def import_monitors(self, mapped: MappedFile, *, project_id: str | None, dry_run: bool) -> list[Imported]:
        """Create all or nothing, and return one outcome for each of its items. Raises NoRoomError."""

    @abstractmethod
    def begins_tls(self, host: str, port: int) -> bool:
        """Return whether a server begins a TLS handshake, as a worker sees it. Raises UntestedError."""


class AccountCommand(Command):
    def __init__(self, backend: type[Backend]) -> None:
        self.backend = backend
        self.epilog = type(self).epilog.replace("{account}", backend.example)  # type: ignore[misc]  # of this instance


class Apply(AccountCommand):
    help = "Make an account match a YAML file: projects, monitors, channels, windows, status pages."
    epilog = """\
examples:
  {prog} pulsekeeper.yaml {account} --dry-run
  {prog} pulsekeeper.yaml {account} --prune

All changes are one transaction. Entries of the file are created or updated; everything else stays.
With --prune, what the file manages but does not list is deleted (docs/use/configuration-as-code.md).

exit codes:
  0  applied, or nothing to change
  2  nothing changed: the file has problems, which are listed with lines, or a usage error
  3  with --detailed-exitcode: there were changes (with --dry-run: there would be)
  4  the database or the server cannot be reached. If only its answer was lost, all was applied or nothing: repeat it
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML; - is standard input")
        self.backend.add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="show what would change without changing it")
        parser.add_argument("--prune", action="store_true", help="delete what the file manages but does not list")
        parser.add_argument(
            "--detailed-exitcode", action="store_true", help=f"exit with {EXIT_CHANGES} if there are changes"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        file, as_json = options["file"], options["as_json"]
        try:
            backend = self.backend(options)
            report = backend.apply(read(_read_file(file)), prune=options["prune"], dry_run=options["dry_run"])
        except InvalidManifest as error:
            if as_json:
                _print_json(out, {"applied": False, "problems": [problem.as_json() for problem in error.problems]})
            else:
                name = "standard input" if file == "-" else file
                _print(err, *(problem.format(name) for problem in error.problems))
                count = len(error.problems)
                _print(err, f"{count} {'problem' if count == 1 else 'problems'}; nothing was changed.")
            return UsageError("").code
        if as_json:
            _print_json(out, report.as_json())
        else:
            _print(out, *_report_lines(report))
        return EXIT_CHANGES if options["detailed_exitcode"] and report.changes else 0


class Export(AccountCommand):
    help = "Export an account as YAML for the command apply, without secrets."
    epilog = """\
examples:
  {prog} {account} > pulsekeeper.yaml
  {prog} {account} --project prj_abc --output shop.yaml

exit codes:
  0  written
  2  usage error, unknown account or project, or the file cannot be written
  4  the database or the server cannot be reached
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.backend.add_arguments(parser)
        parser.add_argument("--project", metavar="ID", help="export only this project")
        parser.add_argument("--ids", action="store_true", help="include all ids, to rename or move objects")
        parser.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="write JSON, which is YAML too")

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        document = self.backend(options).export(project_id=options["project"], with_ids=options["ids"])
        text = write(document, as_json=options["as_json"])
        if options["output"] is None:
            out.write(text)
            return 0
        try:
            with replaced(Path(options["output"])) as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"{options['output']}: {error.strerror}") from None
        return 0


class Import(AccountCommand):
    help = "Create monitors from an export of another product, and list what could not be imported."
    epilog = """\
files:
  uptime-kuma   a backup as JSON (version 1), or the list of monitors of version 2
  healthchecks  the answer to GET /api/v3/checks/
  uptimerobot   the answer to getMonitors (v2) or to GET /monitors (v3), or the address of either: then all pages are
                fetched with the key in UPTIMEROBOT_API_KEY
  gatus         its configuration as YAML

All supported monitors, and the alert channels that they use, are created in one transaction. Importing the same file
again creates no duplicates. Without --project, groups become projects: those of the account with the same name, or new
ones. The output lists what was changed or skipped, by monitor, channel and field. It has names, URLs and intervals, but
never values of headers or of channels.

example:
  {prog} uptime-kuma Uptime_Kuma_Backup.json {account} --dry-run
  {prog} uptimerobot https://api.uptimerobot.com/v3/monitors {account} --dry-run

exit codes:
  0  all monitors of the file exist (with --dry-run: would exist)
  1  some monitors were skipped; the others exist now
  2  usage error, unknown account or project, or the file cannot be read
  3  nothing was created: the plan's limit would be exceeded
  4  the database or the server cannot be reached
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", choices=SOURCES, help="product that exported the file")
        parser.add_argument("file", metavar="FILE", help="the exported file, or the address of UptimeRobot's API")
        self.backend.add_arguments(parser)
        parser.add_argument("--project", metavar="ID", help="one project for all monitors, in place of groups")
        parser.add_argument("--dry-run", action="store_true", help="show what would be created without creating it")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        dry_run = options["dry_run"]
        try:
            mapped = SOURCES[options["source"]](_read_source(options["source"], options["file"]))
            backend = self.backend(options)
            mapped = replace(mapped, monitors=complete_addresses(mapped.monitors, backend.begins_tls))
            outcomes = backend.import_monitors(mapped.supported(), project_id=options["project"], dry_run=dry_run)
        except UnreadableFileError as error:
            raise UsageError(f"{options['file']}: {error}") from None
        all_imported, count = combine(mapped.items, outcomes), len(mapped.monitors)
        imported, channels = all_imported[:count], all_imported[count:]
        counts, channel_counts = _counts(imported), _counts(channels)
        if options["as_json"]:
            monitors = [
                {
                    "name": each.name,
                    "project": each.project,
                    "outcome": each.outcome.value,
                    "id": each.monitor and each.monitor.id,
                    "ping_url": each.monitor and each.monitor.ping_url,
                    "notes": [asdict(note) for note in each.notes],
                    "is_private": each.is_private,
                }
                for each in imported
            ]
            found = [
                {
                    "name": each.name,
                    "project": each.project,
                    "outcome": each.outcome.value,
                    "id": each.channel and each.channel.id,
                    "notes": [asdict(note) for note in each.notes],
                }
                for each in channels
            ]
            _print_json(out, {"dry_run": dry_run, "counts": counts, "monitors": monitors, "channels": found}, indent=2)
        else:
            created = "would be created" if dry_run else "created"
            _print(out, *(line for each in imported for line in _imported_lines(each, dry_run=dry_run)))
            if private := sum(each.is_private for each in imported):
                _print(out, f"{private} in private networks: {backend.private_networks}")
            _print(out, *(line for each in channels for line in _channel_lines(each, dry_run=dry_run)))
            for noun, numbers in (("alert channels: ", channel_counts), ("", counts)):
                if noun == "" or channels:
                    existing, skipped = numbers["existing"], numbers["skipped"]
                    _print(out, f"{noun}{numbers['created']} {created}, {existing} existing, {skipped} skipped")
        return EXIT_LEFT_OUT if counts["skipped"] else 0


def _counts(imported: Sequence[Imported]) -> dict[str, int]:
    return {outcome.value: sum(each.outcome is outcome for each in imported) for outcome in Outcome}


def _print(output: Output, *lines: str) -> None:
    for line in lines:
        output.write(f"{line}\n")


def _print_json(output: Output, found: Mapping[str, Any], *, indent: int | None = None) -> None:
    _print(output, json.dumps(found, ensure_ascii=False, indent=indent))


def _read_file(file: str) -> bytes:
    """Read at most one byte more than the limit, so that `read` rejects a larger file."""
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None


def _read_source(source: str, file: str) -> str:
    """Return the text of a file, or all pages of an API. Raises UnreadableFileError."""
    if source == "uptimerobot" and file.startswith(("http://", "https://")):
        key = os.environ.get(API_KEY, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise UsageError(f"an API key is needed in the environment: {API_KEY}")
        return fetching.fetch(file, key=key)
    path = Path(file)
    try:
        if path.stat().st_size > MAX_FILE:
            raise UnreadableFileError("is too large")
        return decode(path.read_bytes())
    except OSError as error:
        raise UnreadableFileError(f"cannot be read: {error.strerror}") from None


def _report_lines(report: Report) -> Iterator[str]:
    for change in report.changes:
        yield from change.lines()
    for note in report.notes:
        yield f"note: line {note.mark.line}: {note.path}: {note.message}"
    if report.unmentioned:
        yield f"note: {report.unmentioned} not in the file; --prune would delete them."
    counts = "{} created, {} changed, {} deleted." if report.applied else "{} to create, {} to change, {} to delete."
    numbers = (report.created, report.changed, report.deleted)
    yield counts.format(*numbers) if report.changes else "Nothing to change."
    if report.first_checks and report.applied:
        come = "first check runs" if report.first_checks == 1 else "first checks run"
        yield f"{report.first_checks} {come} with the next tick of the scheduler."


def _imported_lines(each: Imported, *, dry_run: bool) -> Iterator[str]:
    """Yield the lines about one monitor of the file."""
    about = ""
    if (monitor := each.monitor) is not None:
        where = shown_address(monitor.url) if monitor.url else ""
        cron = f"at {monitor.schedule} in {monitor.timezone}" if monitor.schedule is not None else ""
        shown = [monitor.type, where, cron or f"every {monitor.interval_sec} s"]
        place = f" in {printable(each.project)}" if each.project else ""
        about = f" ({', '.join(filter(None, shown))}){place}" + (f" {monitor.id}" if monitor.id else "")
    yield f"{_outcome(each, dry_run=dry_run)} {printable(each.name)}{about}"
    if monitor is not None and monitor.ping_url:
        yield f"  ping: {monitor.ping_url}"
    yield from (f"  {note.field}: {printable(note.text)}" for note in each.notes)


def _channel_lines(each: Imported, *, dry_run: bool) -> Iterator[str]:
    """Yield the lines about one channel of the file."""
    about = ""
    if (channel := each.channel) is not None:
        about = f" ({channel.kind}, {counted(channel.monitors, 'new monitor')})"
        about += f" {channel.id}" if channel.id else ""
    yield f"{_outcome(each, dry_run=dry_run)} channel {printable(each.name)}{about}"
    yield from (f"  {note.field}: {printable(note.text)}" for note in each.notes)


def _outcome(each: Imported, *, dry_run: bool) -> str:
    would_be = "WOULD BE " if dry_run and each.outcome is Outcome.CREATED else ""
    return f"{would_be}{each.outcome.upper()}"
