"""The command discover: monitors from labels of containers and annotations of Kubernetes objects."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.cli import Command, Output, UsageError
from core.text import counted
from pulsekeeper.client import add_server_arguments
from pulsekeeper.discover import cluster
from pulsekeeper.discover.applying import Account, Applying, Existing, Matched, match
from pulsekeeper.discover.compose import list_compose
from pulsekeeper.discover.docker import list_docker
from pulsekeeper.discover.kubernetes import list_kubernetes
from pulsekeeper.discover.labels import Complaint, Discovered, Listing, discover, parse_defaults
from pulsekeeper.manifest.changes import Report
from pulsekeeper.manifest.commands import EXIT_CHANGES
from pulsekeeper.manifest.problems import MAX_PROBLEMS, Document, InvalidManifest, printable
from pulsekeeper.manifest.yaml_reader import MAX_BYTES, read

EXIT_INCOMPLETE = 1
CONFIRM_SEC, MAX_CONFIRM_SEC = 30, 3600
MAX_PER_NAMESPACE = 100
_SOURCE = re.compile(r"[a-z0-9][a-z0-9._-]{0,28}")
_ONLY_FOR: Mapping[str, Sequence[str]] = {
    "swarm": ("docker",),
    "env": ("compose",),
    **dict.fromkeys(
        ("ingress", "httproute", "namespace", "kubeconfig", "context", "max_per_namespace"), ("kubernetes",)
    ),
}


class Discover(Command):
    mixes_arguments = True
    help = "Create monitors from labels of containers, and annotations of Kubernetes objects."
    epilog = """\
platforms:
  docker      containers, also stopped ones, of the daemon at DOCKER_HOST or /var/run/docker.sock
  kubernetes  services and ingresses of a cluster: that of the pod, or of a kubeconfig
  compose     services of a Compose file

examples:
  {prog} docker --source web-1 --project Shop --dry-run
  {prog} kubernetes --source prod --project Cluster --ingress --prune
  {prog} compose compose.yaml --source shop --env SHOP_HOST

A label pulsekeeper.url creates a monitor, and others set it up: pulsekeeper.name, pulsekeeper.interval
(docs/use/discovery.md). The tag discovered:SOURCE marks the monitors of a source. Others are never changed or removed.
With --prune, those that are no longer in the list are removed.

exit codes:
  0  applied, or nothing to change
  1  some labels are invalid, or something could not be listed; the rest was applied
  2  usage error, or the server refuses the monitors; nothing was created or changed unless the message says so
  3  with --detailed-exitcode: there were changes (with --dry-run: there would be)
  4  the platform or the server cannot be reached. If it was during a change, repeat it
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("platform", choices=("docker", "kubernetes", "compose"), help="where to read labels")
        parser.add_argument("file", metavar="FILE", nargs="?", help="compose: the file")
        parser.add_argument(
            "--source",
            required=True,
            type=_source,
            metavar="NAME",
            help="name of this host, cluster or file; each has its own",
        )
        parser.add_argument(
            "--project", metavar="NAME", help="project of the monitors, created if needed (default: none)"
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            dest="defaults",
            metavar="SETTING=VALUE",
            help="a setting that labels may override, such as interval=5m; also locations=ID,ID",
        )
        parser.add_argument("--traefik", action="store_true", help="also monitor the hosts of Traefik's routers")
        parser.add_argument("--swarm", action="store_true", help="docker: read services of a swarm, not containers")
        parser.add_argument("--ingress", action="store_true", help="kubernetes: also monitor the hosts of ingresses")
        parser.add_argument(
            "--httproute", action="store_true", help="kubernetes: also monitor the hosts of HTTPRoutes (Gateway API)"
        )
        parser.add_argument(
            "--namespace", action="append", metavar="NAME", help="kubernetes: only this namespace; repeatable"
        )
        parser.add_argument(
            "--max-per-namespace",
            type=int,
            metavar="N",
            help=f"kubernetes: monitors that a namespace may have (default: {MAX_PER_NAMESPACE})",
        )
        parser.add_argument("--kubeconfig", metavar="FILE", help="kubernetes: default KUBECONFIG, or the pod's account")
        parser.add_argument("--context", metavar="NAME", help="kubernetes: default the kubeconfig's current context")
        parser.add_argument(
            "--env",
            action="append",
            metavar="NAME[=VALUE]",
            help="compose: a variable that labels may contain, by default with its value here; repeatable",
        )
        add_server_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="show what would change without changing it")
        parser.add_argument(
            "--prune", action="store_true", help="remove monitors of this source that are not in the list"
        )
        parser.add_argument("--allow-empty", action="store_true", help="with --prune: remove all if the list is empty")
        parser.add_argument(
            "--confirm-after",
            type=float,
            default=CONFIRM_SEC,
            metavar="SEC",
            help=f"with --prune: list again before removing (default: {CONFIRM_SEC}; 0: do not)",
        )
        parser.add_argument(
            "--detailed-exitcode", action="store_true", help=f"exit with {EXIT_CHANGES} if there are changes"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        platform = options["platform"]
        for name, platforms in _ONLY_FOR.items():
            if options[name] not in (None, False) and platform not in platforms:
                raise UsageError(f"--{name.replace('_', '-')} is for {' and '.join(platforms)} only")
        if (platform == "compose") != (options["file"] is not None):
            raise UsageError("compose needs a FILE, and the other platforms have none")
        if not 0 <= options["confirm_after"] <= MAX_CONFIRM_SEC:
            raise UsageError(f"--confirm-after must be 0 to {MAX_CONFIRM_SEC}")
        if options["max_per_namespace"] is not None and options["max_per_namespace"] < 1:
            raise UsageError("--max-per-namespace must be at least 1")
        try:
            defaults = parse_defaults(options["defaults"])
        except ValueError as error:
            raise UsageError(f"--set {error}") from None
        account = Account(options, project=options["project"])
        source = _Source(options, defaults)
        try:
            result = _synchronize(account, source, options)
        except InvalidManifest as error:
            for problem in error.problems:
                where = f"{options['file']}:{problem.mark.line}: " if source.is_reading else ""
                err.write(printable(f"{where}{problem.path}: {problem.message}") + "\n")
            err.write("nothing was changed.\n")
            return UsageError("").code
        if options["as_json"]:
            out.write(json.dumps(result.as_json(), ensure_ascii=False) + "\n")
        else:
            for line in result.lines():
                out.write(f"{line}\n")
            for complaint in result.complaints[:MAX_PROBLEMS]:
                err.write(f"{complaint}\n")
            if result.complaints:
                err.write(f"{counted(len(result.complaints), 'problem')}.\n")
        if result.complaints:
            return EXIT_INCOMPLETE
        return EXIT_CHANGES if options["detailed_exitcode"] and result.report.changes else 0


class _Source:
    """Lists a platform, as often as needed. `is_reading`: a problem is one of the file."""

    def __init__(self, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._options, self._defaults = options, defaults
        self.is_reading = False

    def read(self) -> tuple[Listing, Discovered]:
        self.is_reading = True
        listing = self._listing()
        self.is_reading = False
        limit = self._options["max_per_namespace"] or MAX_PER_NAMESPACE
        return listing, discover(listing, defaults=self._defaults, max_per_namespace=limit)

    def _listing(self) -> Listing:
        options = self._options
        match options["platform"]:
            case "docker":
                return list_docker(swarm=options["swarm"], traefik=options["traefik"])
            case "kubernetes":
                return list_kubernetes(
                    cluster.endpoint_of(os.environ, file=options["kubeconfig"], context=options["context"]),
                    namespaces=options["namespace"] or (),
                    ingress=options["ingress"],
                    httproute=options["httproute"],
                    traefik=options["traefik"],
                )
        variables = _variables(options["env"] or ())
        return list_compose(_document(options["file"]), traefik=options["traefik"], variables=variables)


@dataclass(frozen=True, slots=True)
class _Result:
    report: Report
    complaints: Sequence[Complaint]
    notes: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        problems = [asdict(complaint) for complaint in self.complaints]
        return {**self.report.as_json(), "notes": list(self.notes), "problems": problems}

    def lines(self) -> Iterator[str]:
        report = self.report
        for change in report.changes:
            yield from change.lines()
        yield from (f"note: {printable(note)}" for note in self.notes)
        counts = (
            "{} created, {} changed, {} removed." if report.applied else "{} to create, {} to change, {} to remove."
        )
        numbers = (report.created, report.changed, report.deleted)
        yield counts.format(*numbers) if report.changes else "Nothing to change."


def _synchronize(account: Account, source: _Source, options: Mapping[str, Any]) -> _Result:
    """Make the monitors match the list. Raises CommandFailed and InvalidManifest."""
    dry_run = options["dry_run"]
    listing, found, matched, removed = _look(account, source, options)
    if removed and not dry_run and options["confirm_after"]:
        time.sleep(options["confirm_after"])
        before = {one.id for one in removed}
        listing, found, matched, again = _look(account, source, options)
        removed = [one for one in again if one.id in before]
    outcome = Applying(account, matched, removed=removed, dry_run=dry_run).run()
    notes = [*listing.notes, *outcome.notes]
    if left := outcome.report.unmentioned:
        notes.append(_left(left, listing, matched, prune=options["prune"]))
    complaints = sorted({*found.complaints, *outcome.complaints})
    return _Result(outcome.report, complaints, notes)


def _look(
    account: Account, source: _Source, options: Mapping[str, Any]
) -> tuple[Listing, Discovered, Matched, list[Existing]]:
    """Return what is there, and which monitors may be removed."""
    listing, found = source.read()
    matched = match(found, account.monitors(), source=options["source"])
    removed = list(matched.missing) if options["prune"] and not listing.gaps else []
    if removed and found.is_empty and not options["allow_empty"]:
        count = counted(len(removed), "monitor")
        raise UsageError(f"the list is empty; --allow-empty removes all {count} of {options['source']}")
    return listing, found, matched, removed


def _left(count: int, listing: Listing, matched: Matched, *, prune: bool) -> str:
    monitors = counted(count, "monitor")
    if listing.gaps:
        return f"{monitors} not in the list; nothing is removed while something could not be listed."
    if prune:
        return f"{monitors} not in the second list, but in the first: the next run removes them."
    return f"{monitors} not in the list; --prune would remove them."


def _source(text: str) -> str:
    if not _SOURCE.fullmatch(text):
        raise ArgumentTypeError("must be 1 to 29 lower-case letters, digits, dots, dashes and underscores")
    return text


def _variables(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name} is not in the environment; give --env {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def _document(file: str) -> Document:
    """Read at most one byte more than the limit, so that `read` rejects a larger file."""
    try:
        with Path(file).open("rb") as opened:
            return read(opened.read(MAX_BYTES + 1))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
