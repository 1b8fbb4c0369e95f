"""What an exchange with a target means: up, slow or down, and why. Pure: the network is over when this runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checks.rules import find_broken_rule
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from checks.wording import sentence

# A name for the codes that people ask about; every other code stands for itself.
_STATUS_HINTS = {
    401: "the request was not authorised",
    403: "the request was forbidden",
    404: "the page was not found",
    405: "the method is not allowed",
    407: "a proxy asks for authorisation",
    408: "the server gave up waiting",
    429: "the server limits how often it may be asked",
    500: "the server met an error",
    501: "the server does not know the method",
    502: "a gateway got no valid answer behind it",
    503: "the service is unavailable",
    504: "a gateway got no answer behind it in time",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no judgeable response came."""

    reason_code: ReasonCode
    detail: str


@dataclass(slots=True)
class Exchange:
    """What one check met, all its hops together. Milliseconds are whole, and None where not reached.

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
    cert_expires_at: datetime | None = None


def expects(spec: CheckSpec, status: int) -> bool:
    """Whether a final status passes (decisions 24 and 26)."""
    if spec.expect_status is not None:
        return status == spec.expect_status
    return 200 <= status < (300 if spec.only_2xx else 400)


def _wrong_status(spec: CheckSpec, status: int) -> str:
    hint = _STATUS_HINTS.get(status)
    answered = f"Answered with status {status}" + (f" ({hint})" if hint else "")
    if spec.expect_status is not None:
        return f"{answered} instead of the expected {spec.expect_status}."
    return f"{answered} instead of {'2xx' if spec.only_2xx else '2xx or 3xx'}."


def _find_failure(spec: CheckSpec, exchange: Exchange) -> Failure | None:
    if exchange.failure is not None:
        return exchange.failure
    status = exchange.http_status or 0
    if not expects(spec, status):
        return Failure(ReasonCode.HTTP_FAILURE, _wrong_status(spec, status))
    if spec.rules:
        broken = find_broken_rule(
            spec.rules, exchange.body, content_type=exchange.content_type, over_cap=exchange.over_cap
        )
        if broken is not None:
            return Failure(ReasonCode.CONTENT_FAILURE, broken)
    return None


def judge(spec: CheckSpec, exchange: Exchange, *, now: datetime) -> CheckOutcome:
    """The outcome of a check that ended at `now`: transport first, then status, rules, and speed."""
    failure = _find_failure(spec, exchange)
    latency_ms = exchange.latency_ms
    detail: str | None = None
    if failure is not None:
        verdict = Verdict.DOWN
        detail = sentence(failure.detail)
    elif latency_ms is not None and latency_ms >= spec.slow_ms:
        verdict = Verdict.SLOW
        detail = f"Answered in {latency_ms} ms; from {spec.slow_ms} ms on it counts as slow."
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
