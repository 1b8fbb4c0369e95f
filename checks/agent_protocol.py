"""What agents and the server say to each other, as JSON over https. docs/operate/agents.md describes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from checks.probes.http.evidence import HttpEvidence
from checks.spec import CheckOutcome, ReasonCode, Verdict
from checks.verdict import own_fault
from core.text import sentence

PROTOCOL = 1
"""The version that this code speaks. A server accepts the one before it, too."""
JOIN, LEASES, RESULTS = "/v1/agent/join", "/v1/agent/leases", "/v1/agent/results"
POLL_SEC = 22.0
"""How long the server holds a request for leases open, at most."""
OFFLINE_SEC = 30.0
"""An agent without a request for this long is offline, and has no leases."""
MAX_LEASES = 500
"""Of one answer."""
MAX_RESULTS, MAX_RESULTS_BYTES = 500, 1024 * 1024
"""Of one request."""
MAX_NAME, MAX_VERSION = 100, 40
MAX_DETAIL, MAX_EVIDENCE_BYTES, MAX_ANSWER, MAX_RECORD = 2_000, 32 * 1024, 1_000, 4_096

_Whole = Annotated[int, Meta(ge=0, le=2_147_483_647)]
_Records = Annotated[tuple[Annotated[str, Meta(max_length=MAX_RECORD)], ...], Meta(max_length=MAX_ANSWER)]


class _Secret(msgspec.Struct):
    """A message that never shows its fields: tokens, and header values of checks."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Join(_Secret):
    """What an agent sends to join a location."""

    token: Annotated[str, Meta(max_length=100)]
    name: Annotated[str, Meta(max_length=MAX_NAME)]
    version: Annotated[str, Meta(max_length=MAX_VERSION)]
    protocol: _Whole = PROTOCOL


class Joined(_Secret):
    """Its answer. The credential is returned once."""

    agent_id: str
    credential: str
    location_id: str
    location_name: str


class Poll(msgspec.Struct):
    """A request for leases, and a sign of life. `room` is how many more checks the agent takes.

    `network_down`: it found its own network down, so it gets no leases. `wait_sec` is how long it waits at most.
    """

    room: _Whole
    version: Annotated[str, Meta(max_length=MAX_VERSION)]
    protocol: _Whole = PROTOCOL
    network_down: bool = False
    wait_sec: Annotated[float, Meta(ge=0, le=60)] = POLL_SEC


class Lease(_Secret, omit_defaults=True):
    """A check to make now. `lease` identifies it in the result. `kind` is the name of the spec's class.

    A trigger must not be sent later than `start_within_ms` after the answer arrived. A failure by the network of a
    monitor that `is_down` already does not make the agent test its own network.
    """

    lease: str
    kind: str
    spec: msgspec.Raw
    owner: str = ""
    start_within_ms: int | None = None
    is_down: bool = False


class Leases(msgspec.Struct):
    leases: Sequence[Lease]


class Found(msgspec.Struct, omit_defaults=True):
    """The result of a check that ended `age_ms` ago, by the agent's monotonic clock.

    The other fields are those of `CheckOutcome`. Without `verdict` the check was not made, because of `detail`; it may
    be repeated, `retry_ms` from now if that is set.
    """

    lease: Annotated[str, Meta(max_length=500)]
    age_ms: _Whole = 0
    took_ms: _Whole = 0
    verdict: Verdict | None = None
    latency_ms: _Whole | None = None
    connect_ms: _Whole | None = None
    ttfb_ms: _Whole | None = None
    http_status: Annotated[int, Meta(ge=0, le=999)] | None = None
    loss: Annotated[int, Meta(ge=0, le=100)] | None = None
    reason_code: ReasonCode | None = None
    detail: Annotated[str, Meta(max_length=MAX_DETAIL)] | None = None
    cert_expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    evidence: HttpEvidence | None = None
    answer: _Records | None = None
    retry_ms: _Whole | None = None

    def outcome(self, *, checked_at: datetime) -> CheckOutcome:
        """Return what the check found."""
        if self.verdict is None:
            detail = sentence(self.detail) if self.detail else own_fault("its agent gave no reason").detail
            postponed = None if self.retry_ms is None else self.retry_ms / 1000
            return CheckOutcome(
                Verdict.DOWN, checked_at, reason_code=ReasonCode.WORKER_LOST, detail=detail, postponed=postponed
            )
        return CheckOutcome(
            self.verdict,
            checked_at,
            latency_ms=self.latency_ms,
            connect_ms=self.connect_ms,
            ttfb_ms=self.ttfb_ms,
            http_status=self.http_status,
            loss=self.loss,
            reason_code=self.reason_code,
            detail=self.detail,
            cert_expires_at=self.cert_expires_at,
            evidence=self.evidence,
            answer=self.answer,
        )


class Results(msgspec.Struct):
    """A request with results, from the oldest to the newest."""

    results: Annotated[Sequence[Found], Meta(max_length=MAX_RESULTS)]


class Stored(msgspec.Struct):
    """Its answer, an empty object."""


def found(lease: str, outcome: CheckOutcome, *, age_ms: int, took_ms: int) -> Found:
    """Return the result of a check for the server."""
    if outcome.reason_code is ReasonCode.WORKER_LOST:
        retry_ms = None if outcome.postponed is None else int(outcome.postponed * 1000)
        return Found(lease, age_ms, took_ms, detail=(outcome.detail or "")[:MAX_DETAIL], retry_ms=retry_ms)
    evidence: Any = None if outcome.evidence is None else msgspec.convert(outcome.evidence.stored(), HttpEvidence)
    return Found(
        lease,
        age_ms,
        took_ms,
        verdict=outcome.verdict,
        latency_ms=outcome.latency_ms,
        connect_ms=outcome.connect_ms,
        ttfb_ms=outcome.ttfb_ms,
        http_status=outcome.http_status,
        loss=outcome.loss,
        reason_code=outcome.reason_code,
        detail=outcome.detail,
        cert_expires_at=outcome.cert_expires_at,
        evidence=evidence,
        answer=outcome.answer,
    )
