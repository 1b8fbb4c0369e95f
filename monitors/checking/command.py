"""One check from the command line, without a database and a broker."""

from __future__ import annotations

import argparse
import json
import os
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from checks.probes.engine import ProbeEngine
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, RuleType, Verdict
from core.cli import Command, CommandFailed, Output
from core.clock import to_ms
from core.egress import EgressGuard, literal_address, parse_networks, trusted_file
from core.errors import ValidationFailed
from monitors import configuration, types
from monitors.checking.results import as_check_result
from monitors.types.base import MonitorType
from monitors.types.content import ENCODINGS, MAX_RULE_PATH, MAX_RULE_VALUE, MAX_RULES
from monitors.types.dns import MAX_RECORDS
from monitors.types.encryption import MAX_CA_CERTIFICATE, MAX_CA_CERTIFICATES
from monitors.types.http import MAX_HEADER_NAME, MAX_HEADER_VALUE, MAX_HEADERS, METHODS

EXIT_SLOW, EXIT_DOWN, EXIT_USAGE = 1, 2, 3

_STATUSES = range(100, 1000)
_OPTIONS = {
    "content_rules": "",  # see _option
    "method": "--method",
    "expect_status": "--expect-status",
    "follow_redirects": "--follow-redirects",
    "request_headers": "--header",
    "request_body": "--body",
    "request_body_encoding": "--body-encoding",
    "packets": "--packets",
    "min_replies": "--min-replies",
    "records": "--record",
    "timeout_ms": "--timeout-ms",
    "slow_ms": "--slow-ms",
    "check_ssl": "--check-ssl",
    "tls_verify": "--no-tls-verify",
    "ca_certificate": "--ca-certificate",
}
"""The settings of monitors that options set."""
_EPILOG = """\
examples:
  {prog} https://shop.example/health --json-field status=ok --slow-ms 500 --fail-on-slow
  {prog} 'tls://mail.example:25?starttls=smtp' --check-ssl
  {prog} https://nas.example/ --ca-certificate ca.pem
  {prog} udp://echo.example:7 --body cafe --body-encoding hex --text-contains cafe
  {prog} icmp://router.example --packets 5 --min-replies 4
  {prog} 'dns:shop.example?type=MX' --record '10 mail.shop.example'

exit codes:
  0  up (slow too, without --fail-on-slow)
  1  slow, with --fail-on-slow
  2  down
  3  usage error, or this machine cannot run the check
"""

Given = Mapping[str, Any]
"""Fields of a monitor, as in the API, without those whose options were not given."""


def _rule(kind: RuleType, text: str) -> dict[str, str]:
    if kind is not RuleType.JSON_FIELD:
        return {"type": kind.value, "value": text}
    path, equals_sign, equals = text.partition("=")
    if not path:
        raise _usage("--json-field takes PATH or PATH=VALUE")
    return {"type": kind.value, "path": path} | ({"equals": equals} if equals_sign else {})


def _header(text: str) -> dict[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _usage("--header takes 'Name: value'")
    return {"name": name.strip(), "value": value.strip()}


def _status(text: str) -> int:
    if text.isascii() and text.isdigit() and (int(text) in _STATUSES or int(text) == 0):
        return int(text)
    raise _usage(f"--expect-status must be {_STATUSES.start} to {_STATUSES.stop - 1}, or 0 for any 2xx or 3xx")


def _pem(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii", errors="replace") as file:
            return file.read(MAX_CA_CERTIFICATE + 1)
    except OSError as error:
        raise _usage(f"--ca-certificate: {error.strerror}") from None


def _usage(message: str) -> CommandFailed:
    return CommandFailed(message, code=EXIT_USAGE)


def _rule_option(rule: Mapping[str, str]) -> str:
    return f"--{rule['type'].replace('_', '-')}"


def _option(path: str, given: Given) -> str:
    """Return the option, or the URL, that a path in the body of the API stands for: `content_rules[1].path`."""
    name, bracket, rest = path.partition("[")
    if name == "content_rules":
        return _rule_option(given[name][int(rest.partition("]")[0]) if bracket else -1])
    return _OPTIONS.get(name, "the URL")


def build_spec(url: str, given: Given, egress: EgressGuard) -> CheckSpec:
    """Return the check that the options describe, as a monitor has it. Raises CommandFailed with code 3."""

    def permits(host: str) -> bool:
        address = literal_address(host)
        if address is None or egress.permits(address):
            return True
        raise _usage(f"{address} is a private or reserved address; ALLOWED_PRIVATE_NETWORKS can open its network")

    scheme = url.partition(":")[0].lower()
    kind = types.of_scheme(scheme)
    if kind is None:
        raise _usage(f"the URL must begin with one of {', '.join(f'{name}:' for name in types.schemes())}")
    refused = [_option(name, given) for name in given if name not in kind.asked]
    refused += [_rule_option(rule) for rule in given.get("content_rules", ()) if rule["type"] not in kind.rule_types]
    if refused:
        raise _usage(f"{refused[0]} does not apply to {scheme}: addresses")
    for name, value in given.items():
        setting = kind.asked[name]
        if setting.clamped and setting.clamp(value) != value:
            raise _usage(f"{_OPTIONS[name]} must be {setting.minimum} to {setting.maximum}")
        if setting.item is not None and setting.max_length is not None and len(value) > setting.max_length:
            raise _usage(f"at most {setting.max_length} {name.rpartition('_')[2]} can be given")
    try:
        _check_limits(kind, given)
        body = {"type": kind.name, "url": url, **given}
        config = configuration.complete(body, configuration.Limits(floor_sec=1, permits_host=permits))
    except ValidationFailed as error:
        path = error.field or ""
        raise _usage(f"{_option(path, given)}: {error.reason.removeprefix(f'{path}: ')}") from error
    return kind.spec(config, run_id="")


_ITEM_LIMITS = {
    "content_rules": {"value": MAX_RULE_VALUE, "path": MAX_RULE_PATH, "equals": MAX_RULE_VALUE},
    "request_headers": {"name": MAX_HEADER_NAME, "value": MAX_HEADER_VALUE},
}


def _check_limits(kind: MonitorType, given: Given) -> None:
    """Check lengths and ranges, as the serializers of the API do. Raises ValidationFailed."""
    for name, value in given.items():
        setting = kind.asked[name]
        if setting.type is int and not setting.clamped:
            if setting.minimum is not None and value < setting.minimum:
                raise ValidationFailed(f"must be at least {setting.minimum}.", field=name)
            if setting.maximum is not None and value > setting.maximum:
                raise ValidationFailed(f"must be at most {setting.maximum}.", field=name)
        elif isinstance(value, str):
            _check_length(value, setting.max_length, field=name)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                parts = item.items() if isinstance(item, dict) else [("", item)]
                for part, text in parts:
                    limit = _ITEM_LIMITS.get(name, {}).get(part, setting.item_max_length)
                    _check_length(text, limit, field=f"{name}[{index}]")
                if name == "content_rules" and "value" in item and not item["value"]:
                    raise ValidationFailed("must not be empty.", field=f"{name}[{index}]")


def _check_length(text: str, limit: int | None, *, field: str) -> None:
    if limit is not None and len(text) > limit:
        raise ValidationFailed(f"must have at most {limit} characters.", field=field)


def as_json(outcome: CheckOutcome) -> str:
    """Return the fields of a CheckResult and more, as JSON."""
    return json.dumps(
        {
            **as_check_result(outcome),
            "loss": outcome.loss,
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
        "loss {} %": outcome.loss,
        "certificate until {:%Y-%m-%d}": outcome.cert_expires_at,
    }
    known = ", ".join(text.format(value) for text, value in measured.items() if value is not None)
    head = f"{outcome.verdict.upper()} {url}" + (f" ({known})" if known else "")
    seen = [] if outcome.evidence is None else outcome.evidence.lines()
    evidence = [f"  {name}: {value}" for name, value in seen if value]
    return "\n".join(filter(None, [head, outcome.detail, *evidence]))


class Probe(Command):
    """`engine` returns the egress guard and the engine of this machine. Raises ValueError for wrong settings."""

    help = "Check one address as a monitor would, and print whether it is up, slow or down."
    epilog = _EPILOG
    usage_code = EXIT_USAGE  # 2, with which argparse exits, means here that the target is down

    def __init__(self, engine: Callable[[], tuple[EgressGuard, ProbeEngine]]) -> None:
        self._engine = engine

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options. Those of settings have the setting's name, and are absent from the result if not given."""
        absent = argparse.SUPPRESS
        parser.add_argument(
            "url",
            metavar="URL",
            help="http://, https://, tcp://, tls://, udp://, icmp:// or dns:, as the address of a monitor",
        )
        for kind, metavar, subject in (
            (RuleType.TEXT_CONTAINS, "TEXT", "the response must contain this text"),
            (RuleType.TEXT_ABSENT, "TEXT", "the response must not contain this text"),
            (RuleType.JSON_FIELD, "PATH[=VALUE]", "http: the JSON of the body must have this field (with this value)"),
        ):
            parser.add_argument(
                f"--{kind.value.replace('_', '-')}",
                dest="content_rules",
                action="append",
                default=absent,
                type=partial(_rule, kind),
                metavar=metavar,
                help=f"{subject}; at most {MAX_RULES} rules",
            )

        def setting(name: str, **arguments: Any) -> None:
            parser.add_argument(_OPTIONS[name], dest=name, default=absent, **arguments)

        setting("method", choices=sorted(METHODS), help="http; default: HEAD, GET with rules")
        setting("expect_status", type=_status, metavar="CODE", help="http; exact status; default: 2xx or 3xx")
        setting("follow_redirects", action="store_true", help="http; follow redirects, and judge the final response")
        text = f"http; request header; at most {MAX_HEADERS}"
        setting("request_headers", action="append", type=_header, metavar="'Name: value'", help=text)
        setting("request_body", metavar="TEXT", help="http, tcp, tls and udp; what to send")
        text = "tcp, tls and udp; how --body is written; default: text"
        setting("request_body_encoding", choices=ENCODINGS, help=text)
        setting("packets", type=int, metavar="N", help="icmp; echo requests to send; default: 3")
        setting("min_replies", type=int, metavar="N", help="icmp; replies needed to pass; default: 1")
        text = f"dns; a record of the exact set that is expected; at most {MAX_RECORDS}"
        setting("records", action="append", metavar="TEXT", help=text)
        setting("timeout_ms", type=int, metavar="MS", help="timeout of the whole check; default: 10000")
        setting("slow_ms", type=int, metavar="MS", help="latency that counts as slow; default: 1500")
        setting("check_ssl", action="store_true", help="http, tcp and tls; report TLS failures as an SSL problem")
        text = "http, tcp and tls; accept any certificate, which is unsafe"
        setting("tls_verify", action="store_false", help=text)
        text = f"http, tcp and tls; PEM, up to {MAX_CA_CERTIFICATES} certificates to trust besides the system's"
        setting("ca_certificate", type=_pem, metavar="FILE", help=text)
        parser.add_argument("--fail-on-slow", action="store_true", help="exit with 1 when slow")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        url = options["url"]
        try:
            guard, engine = self._engine()
        except ValueError as error:
            raise _usage(str(error)) from None
        spec = build_spec(url, {name: options[name] for name in _OPTIONS if name in options}, guard)
        outcome = engine.check(spec)
        if outcome.reason_code is ReasonCode.WORKER_LOST:  # says nothing about the target
            raise _usage(outcome.detail or "the check did not run")
        text = as_json(outcome) if options["as_json"] else as_text(url, outcome)
        out.write(f"{text}\n")
        if outcome.verdict is Verdict.DOWN:
            return EXIT_DOWN
        return EXIT_SLOW if outcome.verdict is Verdict.SLOW and options["fail_on_slow"] else 0


def engine_of_environment() -> tuple[EgressGuard, ProbeEngine]:
    """Return guard and engine as the environment sets them, with the variables of a server."""
    guard = EgressGuard(allowed=parse_networks(os.environ.get("ALLOWED_PRIVATE_NETWORKS", "")))
    return guard, ProbeEngine(guard, trusted_file(os.environ.get("SSL_CERT_FILE", "")))
