"""Specs and outcomes: the input and output of every probe.

Plain Python: scheduled checks, first checks, tests of drafts and `manage.py probe` share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique

import msgspec

from checks.evidence import Evidence


class Verdict(StrEnum):
    """A monitor's status as one check sees it. `slow` is a pass."""

    UP = "up"
    SLOW = "slow"
    DOWN = "down"


@unique
class ReasonCode(StrEnum):
    """Why a check failed, for machines."""

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
    HEARTBEAT_FAILED = "heartbeat_failed"
    WORKER_LOST = "worker_lost"


class RuleType(StrEnum):
    TEXT_CONTAINS = "text_contains"
    TEXT_ABSENT = "text_absent"
    JSON_FIELD = "json_field"


@dataclass(frozen=True, slots=True)
class ContentRule:
    """One assertion on what was received: `value` for the text rules, `path` and perhaps `equals` for json_field."""

    type: RuleType
    value: str = ""
    path: str = ""
    equals: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One check, complete: nothing else is read while it runs. Each protocol adds its target and settings."""

    timeout_ms: int = 10_000  # for all steps together
    slow_ms: int = 1_500
    explains: bool = False  # the outcome has evidence also if the check passed


def certificate_facts(*, verifies: bool, ca_certificate: str | None) -> tuple[tuple[str, str], ...]:
    """Return the fact of a check over TLS that did not verify the certificate as usual, none if it did."""
    if not verifies:
        return (("certificate check", "off: any certificate is accepted"),)
    if ca_certificate is not None:
        return (("certificate check", "by the monitor's CA certificate and the system's authorities"),)
    return ()


class CheckOutcome(msgspec.Struct):
    """The outcome of one check, which ended at `checked_at`. Its probe fills it in while it runs.

    Milliseconds are whole, and None where that point was not reached. `latency_ms` is the whole check, `connect_ms`
    until the TCP connection is established, `ttfb_ms` until the first byte of the response. `http_status` is None for
    other protocols, as is `loss`, the percent of packets that did not return to a ping. `detail` and `reason_code` are
    None unless the check was down or slow, `evidence` unless it failed or its spec asks for it. `answer` is the sorted
    set of records that a dns check found, None where it expects a certain one. `postponed`: one of our limits prevented
    the check, and its turn is in this number of seconds. `by_network`: no answer arrived, so the cause may be our own
    network.
    """

    verdict: Verdict
    checked_at: datetime
    latency_ms: int | None = None
    connect_ms: int | None = None
    ttfb_ms: int | None = None
    http_status: int | None = None
    loss: int | None = None
    reason_code: ReasonCode | None = None
    detail: str | None = None
    cert_expires_at: datetime | None = None
    evidence: Evidence | None = None
    answer: tuple[str, ...] | None = None
    postponed: float | None = None
    by_network: bool = False

    @property
    def passed(self) -> bool:
        return self.verdict is not Verdict.DOWN
