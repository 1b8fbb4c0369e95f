"""`manage.py probe URL`: one check from the command line, without a database and a broker."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError, CommandParser

from checks.probes.http.request import METHODS, first_request
from checks.probes.http.spec import ContentRule, HttpSpec, RuleType
from checks.probes.http.target import MAX_URL, BadRequestError
from checks.spec import CheckOutcome, Verdict
from core.clock import to_ms
from core.egress import EgressGuard, literal_address
from core.outbound import guard
from monitors.probing.interactive import as_check_result
from monitors.probing.prober import probe_engine
from monitors.types.http import FORBIDDEN_HEADERS, MAX_HEADERS, MAX_RULES

EXIT_SLOW, EXIT_DOWN, EXIT_USAGE = 1, 2, 3

_MAX_RULE_TEXT = 256
_MAX_RULE_PATH = 128
_TIMEOUTS = range(1000, 60_001)
_STATUSES = range(100, 1000)
_EPILOG = """\
example, for a pipeline that waits for a deployment:
  manage.py probe https://shop.example/health --json-field status=ok --slow-ms 500 --fail-on-slow

exit codes:
  0  up (slow too, without --fail-on-slow)
  1  slow, with --fail-on-slow
  2  down
  3  bad usage
"""


def _rule(option: str, text: str) -> ContentRule:
    """Return the rule. Raises CommandError for one that the API would refuse."""
    if option == "--json-field":
        path, equals_sign, equals = text.partition("=")
        if not path or len(path) > _MAX_RULE_PATH or len(equals) > _MAX_RULE_TEXT:
            raise _usage(
                f"--json-field takes PATH or PATH=VALUE, the path 1 to {_MAX_RULE_PATH} characters and the value"
                f" at most {_MAX_RULE_TEXT}"
            )
        return ContentRule(RuleType.JSON_FIELD, path=path, equals=equals if equals_sign else None)
    if not 0 < len(text) <= _MAX_RULE_TEXT:
        raise _usage(f"{option} takes 1 to {_MAX_RULE_TEXT} characters")
    kind = RuleType.TEXT_CONTAINS if option == "--text-contains" else RuleType.TEXT_ABSENT
    return ContentRule(kind, value=text)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _usage("--header takes 'Name: value'")
    if name.strip().lower() in FORBIDDEN_HEADERS:
        raise _usage(f"--header cannot set {name.strip()}, which belongs to the connection")
    return name.strip(), value.strip()


def _usage(message: str) -> CommandError:
    return CommandError(message, returncode=EXIT_USAGE)


def _check_url(url: str, egress: EgressGuard) -> None:
    if len(url) > MAX_URL:
        raise _usage(f"the URL is longer than {MAX_URL} characters")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise _usage(f"the URL cannot be used: {error}") from error
    if "@" in parts.netloc:
        raise _usage("the URL holds a user name or password; use --header 'Authorization: …' instead")
    address = literal_address(host)
    if address is not None and not egress.permits(address):
        raise _usage(f"{address} is a private or reserved address; ALLOWED_PRIVATE_NETWORKS can open its network")


def build_spec(url: str, options: dict[str, Any], egress: EgressGuard) -> HttpSpec:
    """Return the check that the options describe. Raises CommandError with return code 3."""
    _check_url(url, egress)
    rules, headers = tuple(options["rules"]), tuple(options["headers"])
    if len(rules) > MAX_RULES:
        raise _usage(f"at most {MAX_RULES} rules can be given")
    if len(headers) > MAX_HEADERS:
        raise _usage(f"at most {MAX_HEADERS} headers can be given")
    if options["timeout_ms"] not in _TIMEOUTS:
        raise _usage(f"--timeout-ms must be {_TIMEOUTS.start} to {_TIMEOUTS.stop - 1}")
    if options["slow_ms"] < 0:
        raise _usage("--slow-ms must not be negative")
    expect_status = options["expect_status"] or None
    if expect_status is not None and expect_status not in _STATUSES:
        raise _usage(f"--expect-status must be {_STATUSES.start} to {_STATUSES.stop - 1}, or 0 for any 2xx or 3xx")
    spec = HttpSpec(
        url,
        method="GET" if rules and options["method"] == "HEAD" else options["method"],
        headers=headers,
        timeout_ms=options["timeout_ms"],
        slow_ms=options["slow_ms"],
        expect_status=expect_status,
        follow_redirects=options["follow_redirects"],
        check_ssl=options["check_ssl"],
        rules=rules,
    )
    try:
        first_request(spec)
    except BadRequestError as error:
        raise _usage(str(error)) from error
    return spec


def as_json(outcome: CheckOutcome) -> str:
    """Return the fields of a CheckResult and more, as JSON."""
    return json.dumps(
        {
            **as_check_result(outcome),
            "reason_code": outcome.reason_code,
            "cert_expires_at": None if outcome.cert_expires_at is None else to_ms(outcome.cert_expires_at),
            "evidence": None if outcome.evidence is None else asdict(outcome.evidence),
        },
        ensure_ascii=False,
    )


def as_text(url: str, outcome: CheckOutcome) -> str:
    """Return the verdict as text: one line, its reason, and the evidence of a failure."""
    measured = {
        "status {}": outcome.http_status,
        "latency {} ms": outcome.latency_ms,
        "connect {} ms": outcome.connect_ms,
        "first byte {} ms": outcome.ttfb_ms,
        "certificate until {:%Y-%m-%d}": outcome.cert_expires_at,
    }
    known = ", ".join(text.format(value) for text, value in measured.items() if value is not None)
    head = f"{outcome.verdict.upper()} {url}" + (f" ({known})" if known else "")
    seen = [] if outcome.evidence is None else outcome.evidence.lines()
    evidence = [f"  {name}: {value}" for name, value in seen if value]
    return "\n".join(filter(None, [head, outcome.detail, *evidence]))


class Command(BaseCommand):
    help = "Check one URL as a monitor would, and print whether it is up, slow or down."
    requires_system_checks = ()  # they need a database

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Turn bad usage into a CommandError, for which run_from_argv exits with 3. argparse exits with 2, which means
        # here that the target is down.
        self._called_from_command_line = False
        return super().create_parser(
            prog_name, subcommand, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs
        )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", metavar="URL", help="http or https, without user name and password")
        parser.add_argument("--method", default="HEAD", choices=sorted(METHODS), help="default: HEAD, GET with rules")
        parser.add_argument("--expect-status", type=int, metavar="CODE", help="exactly this one; default: 2xx or 3xx")
        for option, metavar, text in (
            ("--text-contains", "TEXT", "the body must contain it"),
            ("--text-absent", "TEXT", "the body must not contain it"),
            ("--json-field", "PATH[=VALUE]", "the JSON of the body must have this field (with this value)"),
        ):
            rule, help_text = partial(_rule, option), f"{text}; at most {MAX_RULES} rules"
            parser.add_argument(
                option, dest="rules", action="append", default=[], type=rule, metavar=metavar, help=help_text
            )
        text = f"sent along; at most {MAX_HEADERS}"
        parser.add_argument(
            "--header", dest="headers", action="append", default=[], type=_header, metavar="'Name: value'", help=text
        )
        parser.add_argument(
            "--timeout-ms", type=int, default=10_000, metavar="MS", help="for everything; default 10000"
        )
        parser.add_argument("--slow-ms", type=int, default=1_500, metavar="MS", help="from here on slow; default 1500")
        parser.add_argument("--follow-redirects", action="store_true", help="judge where redirects lead to")
        parser.add_argument("--check-ssl", action="store_true", help="report TLS failures as an SSL problem")
        parser.add_argument("--fail-on-slow", action="store_true", help="exit with 1 when slow")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except CommandError as error:  # from the parser; super() handles those of `handle`
            self.stderr.write(f"CommandError: {str(error).removeprefix('Error: ')}")
            sys.exit(EXIT_USAGE)

    def handle(self, *, url: str, **options: Any) -> None:
        spec = build_spec(url, options, guard())
        outcome = probe_engine().check(spec)
        self.stdout.write(as_json(outcome) if options["as_json"] else as_text(url, outcome))
        if outcome.verdict is Verdict.DOWN:
            sys.exit(EXIT_DOWN)
        if outcome.verdict is Verdict.SLOW and options["fail_on_slow"]:
            sys.exit(EXIT_SLOW)
