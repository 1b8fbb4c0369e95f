"""Judge what a probe found: up, slow or down, and why. Shared by all protocols. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core.text import sentence


@dataclass(frozen=True, slots=True)
class Failure:
    reason_code: ReasonCode
    detail: str


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


def judge(spec: CheckSpec, outcome: CheckOutcome, failure: Failure | None, *, now: datetime) -> None:
    """Complete the outcome of a check that ended at `now`: a failure comes first, then speed."""
    outcome.checked_at = now
    latency_ms = outcome.latency_ms
    if failure is not None:
        outcome.verdict = Verdict.DOWN
        outcome.reason_code = failure.reason_code
        outcome.detail = sentence(failure.detail)
    elif latency_ms is not None and latency_ms >= spec.slow_ms:
        outcome.verdict = Verdict.SLOW
        outcome.detail = (
            f"Answered in {latency_ms} ms, and from {spec.slow_ms} ms on that counts as slow; "
            "check the server's load, or raise the threshold."
        )
    else:
        outcome.verdict = Verdict.UP
