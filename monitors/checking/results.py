"""The result of a check that is not stored, for callers of the API and for the command."""

from __future__ import annotations

from typing import TypedDict

from checks.spec import CheckOutcome, Verdict


class CheckResult(TypedDict):
    """A check's result as the API returns it."""

    status: Verdict
    latency_ms: int | None
    connect_ms: int | None
    ttfb_ms: int | None
    detail: str | None
    http_status: int | None


def as_check_result(outcome: CheckOutcome) -> CheckResult:
    return {
        "status": outcome.verdict,
        "latency_ms": outcome.latency_ms,
        "connect_ms": outcome.connect_ms,
        "ttfb_ms": outcome.ttfb_ms,
        "detail": outcome.detail,
        "http_status": outcome.http_status,
    }
