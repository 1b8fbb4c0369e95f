"""`manage.py run_checks`: check monitors now, for CI pipelines. `--url` needs neither a database nor a broker."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from core.cli import UsageError
from core.commands import SharedCommand
from pulsekeeper.check.command import ABOUT, EXIT_CODES, Check
from pulsekeeper.check.findings import Source
from pulsekeeper.client import add_server_arguments


class CheckLocally(Check):
    """`manage.py run_checks`: by the database, or with `--url` by an API."""

    epilog = (
        ABOUT
        + """\
examples:
  {prog} --project prj_… --fail-on slow --junit report.xml
  PULSEKEEPER_TOKEN=svc_… {prog} --url https://pulsekeeper.example.com --name 'Shop *'
"""
        + EXIT_CODES
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        group = self.add_filters(parser, "at least one of these, or --url")
        group.add_argument("--account", metavar="EMAIL", help="all that this account sees; not with --url")
        add_server_arguments(parser)
        self.add_options(parser)

    def source(self, options: Mapping[str, Any]) -> Source:
        if options["url"] is not None:
            if options["account"]:
                raise UsageError("--account cannot be used with --url, where the token selects the monitors")
            return super().source(options)
        if not (options["project"] or options["account"] or options["monitor"]):
            raise UsageError("name --project, --account or --monitor, or give --url")
        from monitors.pipelines import LocalSource

        return LocalSource(account=options["account"], project=options["project"], ids=options["monitor"])


class Command(SharedCommand):
    shared = CheckLocally()
