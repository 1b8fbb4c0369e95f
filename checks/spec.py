"""What to check, and what came of it: the two values every probe takes and gives.

Plain Python on purpose: scheduled, first and test checks, and `manage.py probe`, share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from checks.evidence import Evidence


class Verdict(StrEnum):
    """A monitor's status as one check sees it. `slow` is a pass."""

    UP = "up"
    SLOW = "slow"
    DOWN = "down"


class ReasonCode(StrEnum):
    """Why a check failed, for machines (decision 28)."""

    TIMEOUT = "timeout"
    DNS_FAILURE = "dns_failure"
    CONNECTION_FAILURE = "connection_failure"
    TLS_FAILURE = "tls_failure"
    HTTP_FAILURE = "http_failure"
    CONTENT_FAILURE = "content_failure"
    PARTIAL_RESPONSE = "partial_response"
    REDIRECT_FAILURE = "redirect_failure"
    BLOCKED_TARGET = "blocked_target"
    HEARTBEAT_MISSED = "heartbeat_missed"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One check, complete: nothing else is read while it runs. Each protocol adds its target and settings."""

    timeout_ms: int = 10_000  # for all steps together
    slow_ms: int = 1_500


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one check found. Milliseconds are whole; `detail` and `reason_code` are None unless down or slow.

    `checked_at` is the moment the check ended. The timings are those of decision 20; `connect_ms` and
    `ttfb_ms` are None where that point was not reached and when redirects were followed. `evidence` is there
    where the check failed.
    """

    verdict: Verdict
    checked_at: datetime
    latency_ms: int | None = None
    connect_ms: int | None = None
    ttfb_ms: int | None = None
    http_status: int | None = None
    reason_code: ReasonCode | None = None
    detail: str | None = None
    cert_expires_at: datetime | None = None
    evidence: Evidence | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not Verdict.DOWN
