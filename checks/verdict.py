"""What an exchange with a target means: up, slow or down, and why. Pure: the network is over when this runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checks.evidence import Mask
from checks.probes.http.rules import find_broken_rule
from checks.probes.http.spec import HttpSpec
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.text import quote, sentence

# What a code that people ask about means, and where to look; every other code stands for itself.
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


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no judgeable response came."""

    reason_code: ReasonCode
    detail: str


@dataclass(slots=True)
class Exchange:
    """What one check met, all its hops together. Milliseconds are whole, and None where not reached.

    `failure` is why there is no response, `body_fault` what is wrong with the body of one. `unknown_coding` is a
    Content-Encoding that the body was left in.
    Not frozen for speed alone: it is built once per check on the hot path and never changed afterwards.
    """

    failure: Failure | None = None
    http_status: int | None = None
    latency_ms: int | None = None
    connect_ms: int | None = None
    ttfb_ms: int | None = None
    content_type: str | None = None
    body: bytes | bytearray = b""
    over_cap: bool = False
    unknown_coding: str | None = None
    body_fault: Failure | None = None
    cert_expires_at: datetime | None = None


def expects(spec: HttpSpec, status: int) -> bool:
    """Whether a final status passes (decisions 24 and 26)."""
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
    if exchange.failure is not None:
        return exchange.failure
    status = exchange.http_status or 0
    if not expects(spec, status):
        return Failure(ReasonCode.HTTP_FAILURE, _wrong_status(spec, status))
    if exchange.body_fault is not None:
        return exchange.body_fault
    if spec.rules:
        broken = find_broken_rule(
            spec.rules,
            exchange.body,
            content_type=exchange.content_type,
            over_cap=exchange.over_cap,
            mask=lambda text: Mask(spec.headers).own(text),
        )
        if broken is not None:
            if exchange.unknown_coding is not None:
                broken = (
                    f"The body is in the content coding {quote(exchange.unknown_coding, limit=40)}, which nobody "
                    f"asked for and Pulsekeeper cannot undo. {broken}"
                )
            return Failure(ReasonCode.CONTENT_FAILURE, broken)
    return None


def judge(spec: HttpSpec, exchange: Exchange, *, now: datetime) -> CheckOutcome:
    """The outcome of a check that ended at `now`: transport first, then status, coding, rules, and speed."""
    failure = _find_failure(spec, exchange)
    latency_ms = exchange.latency_ms
    detail: str | None = None
    if failure is not None:
        verdict = Verdict.DOWN
        detail = sentence(failure.detail)
    elif latency_ms is not None and latency_ms >= spec.slow_ms:
        verdict = Verdict.SLOW
        detail = (
            f"Answered in {latency_ms} ms, and from {spec.slow_ms} ms on that counts as slow; "
            "check the server's load, or raise the threshold."
        )
    else:
        verdict = Verdict.UP
    return CheckOutcome(
        verdict=verdict,
        checked_at=now,
        latency_ms=latency_ms,
        connect_ms=None if spec.follow_redirects else exchange.connect_ms,
        ttfb_ms=None if spec.follow_redirects else exchange.ttfb_ms,
        http_status=exchange.http_status,
        reason_code=failure.reason_code if failure is not None else None,
        detail=detail,
        cert_expires_at=exchange.cert_expires_at,
    )
