"""Judge what a probe found: up, slow or down, and why. Shared by all protocols. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core.text import sentence


@dataclass(frozen=True, slots=True)
class Failure:
    reason_code: ReasonCode
    detail: str


class Finding(msgspec.Struct):
    """What a probe found. Milliseconds are whole, and None where that point was not reached.

    A struct and not a dataclass, for speed: one is built for each check.
    """

    failure: Failure | None = None
    latency_ms: int | None = None
    connect_ms: int | None = None
    ttfb_ms: int | None = None
    http_status: int | None = None
    cert_expires_at: datetime | None = None


BLOCKED = Failure(
    ReasonCode.BLOCKED_TARGET,
    "The target's address is private or reserved, and Pulsekeeper opens no connection to such; use a public address.",
)


def timed_out(spec: CheckSpec, doing: str) -> Failure:
    return Failure(ReasonCode.TIMEOUT, f"No result within {spec.timeout_ms} ms: {doing}.")


def own_fault(what: str) -> Failure:
    """Return the failure of a check that could not be made: it says nothing about the target."""
    return Failure(ReasonCode.WORKER_LOST, f"Pulsekeeper could not run this check: {what}.")


def failed(failure: Failure, *, now: datetime) -> CheckOutcome:
    """Return the outcome of a check that could not be judged at all."""
    return CheckOutcome(Verdict.DOWN, now, reason_code=failure.reason_code, detail=sentence(failure.detail))


def judge(spec: CheckSpec, finding: Finding, *, now: datetime, failure: Failure | None = None) -> CheckOutcome:
    """Return the outcome of a check that ended at `now`: a failure comes first, then speed.

    `failure` is what the protocol found wrong with a response.
    """
    failure = finding.failure or failure
    latency_ms = finding.latency_ms
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
        connect_ms=finding.connect_ms,
        ttfb_ms=finding.ttfb_ms,
        http_status=finding.http_status,
        reason_code=failure.reason_code if failure is not None else None,
        detail=detail,
        cert_expires_at=finding.cert_expires_at,
    )
