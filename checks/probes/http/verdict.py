"""Judge an http exchange: the expected status, the content coding, and the content rules. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from checks import verdict
from checks.evidence import Mask
from checks.probes.http.rules import find_broken_rule
from checks.probes.http.spec import HttpSpec
from checks.spec import CheckOutcome, ReasonCode
from checks.verdict import Failure, Finding
from core.text import quote

# What a status means, and where to look.
_STATUS_HINTS = {
    401: ("the request was not authorised", "check the credentials in the monitor's request headers"),
    403: (
        "the request was forbidden",
        "allow Pulsekeeper's requests, or check the monitor's request headers",
    ),
    404: ("the page was not found", "check the path of the monitor's URL"),
    405: ("the method is not allowed", "choose another method for the monitor"),
    407: ("a proxy asks for authorisation", "check the proxy before the server"),
    408: ("the server gave up waiting", "check the server's load"),
    410: ("the page is gone", "check the path of the monitor's URL"),
    421: ("the server does not serve this host", "check the host of the monitor's URL and its virtual hosts"),
    429: (
        "the server limits how often it may be asked",
        "raise the monitor's interval or the server's limit",
    ),
    500: ("the server met an error", "check the server's error log"),
    501: ("the server does not know the method", "choose another method for the monitor"),
    502: ("a gateway got no valid answer behind it", "check the application behind the gateway"),
    503: ("the service is unavailable", "check whether it is overloaded or under maintenance"),
    504: ("a gateway got no answer behind it in time", "check the application behind the gateway"),
}


def _advice(status: int) -> str:
    if status < 400:
        return "set the expected status, or whether redirects are followed, to what you mean"
    return "check the server's error log" if status >= 500 else "check the monitor's URL, method and headers"


class Exchange(Finding):
    """What one check found, all its requests together.

    `body_fault` is what is wrong with the body, `unknown_coding` a Content-Encoding that could not be decoded.
    `over_cap`: `body` is only the first MiB.
    """

    content_type: str | None = None
    body: bytes | bytearray = b""
    over_cap: bool = False
    unknown_coding: str | None = None
    body_fault: Failure | None = None


def expects(spec: HttpSpec, status: int) -> bool:
    """Return whether a final status passes. Without an expected one, 200 to 399 do."""
    if spec.expect_status is not None:
        return status == spec.expect_status
    return 200 <= status < (300 if spec.only_2xx else 400)


def _wrong_status(spec: HttpSpec, status: int) -> str:
    hint = _STATUS_HINTS.get(status)
    answered = f"Answered with status {status}" + (f" ({hint[0]})" if hint else "")
    if spec.expect_status is not None:
        wanted = f"the expected {spec.expect_status}"
    else:
        wanted = "2xx" if spec.only_2xx else "2xx or 3xx"
    return f"{answered} instead of {wanted}; {hint[1] if hint else _advice(status)}."


def _find_failure(spec: HttpSpec, exchange: Exchange) -> Failure | None:
    status = exchange.http_status or 0
    if not expects(spec, status):
        return Failure(ReasonCode.HTTP_FAILURE, _wrong_status(spec, status))
    if exchange.body_fault is not None:
        return exchange.body_fault
    if not spec.rules:
        return None
    broken = find_broken_rule(
        spec.rules,
        exchange.body,
        content_type=exchange.content_type,
        over_cap=exchange.over_cap,
        mask=lambda text: Mask(spec.headers).own(text),
    )
    if broken is None:
        return None
    if exchange.unknown_coding is not None:
        broken = (
            f"The body is in the content coding {quote(exchange.unknown_coding, limit=40)}, which nobody "
            f"asked for and Pulsekeeper cannot undo. {broken}"
        )
    return Failure(ReasonCode.CONTENT_FAILURE, broken)


def judge(spec: HttpSpec, exchange: Exchange, *, now: datetime) -> CheckOutcome:
    """Return the outcome of a check that ended at `now`: transport first, then status, coding, rules, and speed."""
    failure = exchange.failure or _find_failure(spec, exchange)
    if spec.follow_redirects:  # they would be those of one of several requests
        exchange = replace(exchange, connect_ms=None, ttfb_ms=None)
    return verdict.judge(spec, exchange, now=now, failure=failure)
