"""Judge what a probe found: up, slow or down, and why. Shared by all protocols. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from checks.spec import CheckOutcome, CheckSpec, ContentRule, ReasonCode, RuleType, Verdict
from core.text import quote, sentence


@dataclass(frozen=True, slots=True)
class Failure:
    """`by_network`: no answer came, so the cause may be our own network. It may be the target's all the same."""

    reason_code: ReasonCode
    detail: str
    by_network: bool = False


BLOCKED = Failure(
    ReasonCode.BLOCKED_TARGET,
    "The target's address is private or reserved, and the network settings of this Pulsekeeper do not allow it.",
)
BLOCKED_BY_AGENT = "The agent does not allow this private or reserved address: start it with --allow and the network."
"""The detail of BLOCKED from an agent, whose networks the settings of the server do not change."""


def timed_out(spec: CheckSpec, doing: str) -> Failure:
    return Failure(ReasonCode.TIMEOUT, f"No result within {spec.timeout_ms} ms: {doing}.", by_network=True)


def own_fault(what: str, *, by_network: bool = False) -> Failure:
    """Return the failure of a check that could not be made: it says nothing about the target."""
    return Failure(ReasonCode.WORKER_LOST, f"Pulsekeeper could not run this check: {what}.", by_network)


def failed(failure: Failure, *, now: datetime) -> CheckOutcome:
    """Return the outcome of a check that could not be judged at all."""
    return CheckOutcome(
        Verdict.DOWN,
        now,
        reason_code=failure.reason_code,
        detail=sentence(failure.detail),
        by_network=failure.by_network,
    )


def broken_text_rule(
    rule: ContentRule, text: str, *, where: str, look: str = "see what it says", as_hex: bool = False
) -> str | None:
    """Return a sentence if `text` breaks a text rule. `where` begins it, `look` is what to do."""
    contained = contains_bytes(text, rule.value) if as_hex else rule.value in text
    if contained == (rule.type is RuleType.TEXT_CONTAINS):
        return None
    fault = (
        f"contains {quote(rule.value)}, which must be absent" if contained else f"does not contain {quote(rule.value)}"
    )
    return f"{where} {fault}; {look}."


def find_broken_text_rule(
    rules: Iterable[ContentRule], received: bytes | bytearray, *, where: str, as_hex: bool
) -> Failure | None:
    """Return the failure of the first text rule that the received bytes break, read as lower-case hex or as UTF-8."""
    text, where = (received.hex(), f"{where} (in hex)") if as_hex else (received.decode("utf-8", "replace"), where)
    for rule in rules:
        if fault := broken_text_rule(rule, text, where=where, as_hex=as_hex):
            return Failure(ReasonCode.CONTENT_FAILURE, fault)
    return None


def contains_bytes(text: str, value: str) -> bool:
    """Return whether `value` is part of `text`, both in hex: `af` is not part of `1afe`."""
    at = text.find(value)
    while at > 0 and at % 2:
        at = text.find(value, at + 1)
    return at >= 0


def judge(spec: CheckSpec, outcome: CheckOutcome, failure: Failure | None, *, now: datetime) -> None:
    """Complete the outcome of a check that ended at `now`: a failure comes first, then speed."""
    outcome.checked_at = now
    latency_ms = outcome.latency_ms
    if failure is not None:
        outcome.verdict = Verdict.DOWN
        outcome.reason_code = failure.reason_code
        outcome.detail = sentence(failure.detail)
        outcome.by_network = failure.by_network
    elif latency_ms is not None and latency_ms >= spec.slow_ms:
        outcome.verdict = Verdict.SLOW
        outcome.detail = (
            f"Answered in {latency_ms} ms, which is slow (threshold {spec.slow_ms} ms); "
            "check the server's load, or raise the threshold."
        )
    else:
        outcome.verdict = Verdict.UP
