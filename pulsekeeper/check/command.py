"""Check monitors now, for CI pipelines: by the database, or by a server's API."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from checks.spec import Verdict
from core.cli import EXIT_INTERRUPTED, Command, CommandFailed, Output, UsageError
from pulsekeeper.check import reports
from pulsekeeper.check.api import ApiSource
from pulsekeeper.check.findings import Exit, Finding, Source, by_threshold, choose, exit_code, without_check
from pulsekeeper.client import add_server_arguments, server_of

TIMEOUT_SEC = 300.0

ABOUT = """\
Checks are made by the workers and count like any other. Heartbeats and schedulers are not checked: their current
status is reported, and nothing is sent. Paused monitors are skipped.

"""
EXIT_CODES = """
exit codes:
  0    nothing is down (with --fail-on slow: nor slow)
  1    a monitor is down (with --fail-on slow: or slow)
  2    usage error: unknown option, monitor, project, account, token or file
  3    a monitor could not be checked in time: no worker ran it, or Pulsekeeper could not run it
  4    the database, the broker or the API at --url cannot be reached
  130  interrupted
"""


class Check(Command):
    """`pulsekeeper check`: by the API of a server."""

    help = "Checks monitors now, waits for the results, and reports whether any of them is down."
    epilog = (
        ABOUT
        + """\
examples:
  PULSEKEEPER_TOKEN=svc_… {prog} --url https://pulsekeeper.example.com --name 'Shop *'
  {prog} --fail-on slow --junit report.xml
"""
        + EXIT_CODES
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_server_arguments(parser)
        self.add_filters(parser, "all that the token sees, or")
        self.add_options(parser)

    def add_filters(self, parser: ArgumentParser, which: str) -> Any:
        group = parser.add_argument_group("which monitors", which)
        group.add_argument("--project", metavar="ID", help="those of this project")
        group.add_argument("--monitor", metavar="ID", action="append", default=[], help="this one; repeatable")
        group.add_argument(
            "--name",
            metavar="GLOB",
            action="append",
            default=[],
            help="of those, only the matching names, like 'Shop *'; repeatable",
        )
        return group

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--fail-on",
            choices=("down", "slow"),
            default="down",
            help="status with exit code 1; default: down",
        )
        parser.add_argument(
            "--slow-ms", type=int, metavar="MS", help="latency that counts as slow; default: each monitor's threshold"
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=TIMEOUT_SEC,
            metavar="SECONDS",
            help=f"maximum wait for all results; default {TIMEOUT_SEC:.0f}",
        )
        parser.add_argument("--junit", metavar="FILE", type=Path, help="write a JUnit report there")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def source(self, options: Mapping[str, Any]) -> Source:
        return ApiSource(server_of(options), project=options["project"])

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        findings: list[Finding] = []
        _check_options(options)
        try:
            return self._run(self.source(options), findings, options, out)
        except KeyboardInterrupt:
            text = reports.summary(findings) if findings else "nothing was checked yet"
            raise CommandFailed(f"interrupted; {text}", code=EXIT_INTERRUPTED) from None

    def _run(self, source: Source, findings: list[Finding], options: Mapping[str, Any], out: Output) -> Exit:
        chosen = choose(source.targets(), ids=options["monitor"], names=options["name"])
        on_terminal = out.isatty() and not options["as_json"]

        def note(finding: Finding) -> None:
            findings.append(finding)
            if not (on_terminal or options["as_json"]):
                out.write(f"{reports.as_text(finding)}\n")
                out.flush()  # people follow the log of a running pipeline

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
            from pulsekeeper.check.junit import report

            _write(options["junit"], report(findings, fail_on=Verdict(options["fail_on"])))
        if options["as_json"]:
            out.write(f"{reports.as_json(findings, code=code)}\n")
            return code
        if on_terminal:
            from rich.console import Console

            Console().print(reports.table(findings))
        out.write(f"{reports.summary(findings)}\n")
        return code


def _check_options(options: Mapping[str, Any]) -> None:
    if options["slow_ms"] is not None and options["slow_ms"] < 0:
        raise UsageError("--slow-ms must not be negative")
    if not 0 < options["timeout"] <= 86_400:
        raise UsageError("--timeout must be more than 0 and at most 86400 seconds")
    path: Path | None = options["junit"]
    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise UsageError(f"{path} cannot be written")  # now, not after all checks


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
