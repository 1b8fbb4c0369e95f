"""`manage.py run_checks`: check monitors now, for CI pipelines. `--url` needs neither a database nor a broker."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from checks.spec import Verdict
from core.commands import OurCommand
from monitors.pipelines import reports
from monitors.pipelines.findings import (
    Exit,
    Finding,
    Source,
    UnreachableError,
    UsageError,
    by_threshold,
    choose,
    exit_code,
    without_check,
)

TOKEN = "PULSEKEEPER_TOKEN"  # noqa: S105  (the variable's name)
TIMEOUT_SEC = 300.0

_EPILOG = """\
Checks are made by the workers and count like any other. Heartbeats and schedulers are not checked: the status that they
have is reported, and nothing is sent. Paused monitors are skipped.

examples:
  manage.py run_checks --project prj_… --fail-on slow --junit report.xml
  PULSEKEEPER_TOKEN=svc_… manage.py run_checks --url https://pulsekeeper.example.com --name 'Shop *'

exit codes:
  0    nothing is down (with --fail-on slow: nor slow)
  1    a monitor is down (with --fail-on slow: or slow)
  2    wrong use: no such option, monitor, project, account, token or file
  3    a monitor could not be checked in time: no worker took it
  4    the database, the broker or the API at --url cannot be reached
  130  interrupted
"""


class Command(OurCommand):
    help = "Checks monitors now, waits for the results, and says whether any of them is down."
    epilog = _EPILOG
    requires_system_checks = ()  # they need a database

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_argument_group("which monitors", "at least one of these, or --url")
        which.add_argument("--project", metavar="ID", help="those of this project")
        which.add_argument("--account", metavar="EMAIL", help="all that this account sees; not with --url")
        which.add_argument("--monitor", metavar="ID", action="append", default=[], help="this one; repeatable")
        which.add_argument(
            "--name",
            metavar="GLOB",
            action="append",
            default=[],
            help="of those, only the ones whose name fits, like 'Shop *'; repeatable",
        )
        which.add_argument(
            "--url",
            metavar="BASE_URL",
            help=f"ask the Pulsekeeper there by its REST API, with the token in {TOKEN}, and no database",
        )
        parser.add_argument(
            "--fail-on", choices=("down", "slow"), default="down", help="what exit code 1 is for; default: down"
        )
        parser.add_argument(
            "--slow-ms", type=int, metavar="MS", help="slow from here on; default: each monitor's own threshold"
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=TIMEOUT_SEC,
            metavar="SECONDS",
            help=f"wait no longer than this for all; default {TIMEOUT_SEC:.0f}",
        )
        parser.add_argument("--junit", metavar="FILE", type=Path, help="write a JUnit report there")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        findings: list[Finding] = []
        try:
            self._check_options(options)
            code = self._run(_source(options), findings, options)
        except UsageError as error:
            raise CommandError(str(error), returncode=Exit.USAGE) from None
        except UnreachableError as error:
            raise CommandError(str(error), returncode=Exit.UNREACHABLE) from None
        except KeyboardInterrupt:
            text = reports.summary(findings) if findings else "nothing was checked yet"
            raise CommandError(f"interrupted; {text}", returncode=Exit.INTERRUPTED) from None
        if code:
            sys.exit(code)

    def _check_options(self, options: dict[str, Any]) -> None:
        if options["url"] is None:
            if not (options["project"] or options["account"] or options["monitor"]):
                raise UsageError("name --project, --account or --monitor, or give --url")
        elif options["account"]:
            raise UsageError("--account is not for --url, where the token says whose monitors they are")
        if options["slow_ms"] is not None and options["slow_ms"] < 0:
            raise UsageError("--slow-ms must not be negative")
        if not 0 < options["timeout"] <= 86_400:
            raise UsageError("--timeout must be more than 0 and at most 86400 seconds")
        if options["junit"] is not None:
            _check_place(options["junit"])  # fail now, not after all checks

    def _run(self, source: Source, findings: list[Finding], options: dict[str, Any]) -> Exit:
        chosen = choose(source.targets(), ids=options["monitor"], names=options["name"])
        on_terminal = self.stdout.isatty() and not options["as_json"]

        def note(finding: Finding) -> None:
            findings.append(finding)
            if not (on_terminal or options["as_json"]):
                self.stdout.write(reports.as_text(finding))
                self.stdout.flush()  # people follow the log of a running pipeline

        to_check = [target for target in chosen if target.checkable]
        for target in chosen:
            if not target.checkable:
                note(without_check(target))
        running = source.run(to_check, timeout_sec=options["timeout"])
        with closing(running), reports.progress(len(to_check), shown=on_terminal) as step:
            for found in running:
                note(by_threshold(found, slow_ms=options["slow_ms"]))
                step()
        code = exit_code(findings, fail_on=Verdict(options["fail_on"]))
        if options["junit"] is not None:
            from monitors.pipelines.junit import report

            _write(options["junit"], report(findings, fail_on=Verdict(options["fail_on"])))
        if options["as_json"]:
            self.stdout.write(reports.as_json(findings, code=code))
            return code
        if on_terminal:
            from rich.console import Console

            Console().print(reports.table(findings))
        self.stdout.write(reports.summary(findings))
        return code


def _source(options: dict[str, Any]) -> Source:
    if options["url"] is None:
        from monitors.pipelines.local import LocalSource

        return LocalSource(account=options["account"], project=options["project"], ids=options["monitor"])
    from monitors.pipelines.api import ApiSource

    token = os.environ.get(TOKEN)
    if not token:
        raise UsageError(f"--url needs a token in the environment: {TOKEN}")
    return ApiSource(options["url"], token=token, project=options["project"])


def _check_place(path: Path) -> None:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
