from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Response
from checks.probes.http.verdict import find_failure
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from checks.verdict import Failure, contains_bytes, judge

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SPEC = HttpSpec("https://target.example/", method="GET", slow_ms=1500)
UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN


def judged(spec: HttpSpec, response: Response, *, latency_ms: int = 5, lost: Failure | None = None) -> CheckOutcome:
    outcome = CheckOutcome(UP, NOW, latency_ms=latency_ms)
    judge(spec, outcome, lost or find_failure(spec, response), now=NOW)
    return outcome


@pytest.mark.parametrize(
    ("spec", "status", "verdict"),
    [
        (SPEC, 200, UP),
        (SPEC, 204, UP),
        (SPEC, 301, UP),
        (SPEC, 399, UP),
        (SPEC, 199, DOWN),
        (SPEC, 400, DOWN),
        (SPEC, 500, DOWN),
        (SPEC, 999, DOWN),
        (replace(SPEC, expect_status=404), 404, UP),
        (replace(SPEC, expect_status=404), 200, DOWN),
        (replace(SPEC, only_2xx=True), 204, UP),
        (replace(SPEC, only_2xx=True), 302, DOWN),
        (replace(SPEC, only_2xx=True, expect_status=302), 302, UP),
    ],
)
def test_status(spec: HttpSpec, status: int, verdict: Verdict) -> None:
    outcome = judged(spec, Response(status=status))
    assert outcome.verdict is verdict
    assert (outcome.detail is None) is (verdict is UP)
    if verdict is DOWN:
        assert outcome.reason_code is ReasonCode.HTTP_FAILURE
        assert str(status) in (outcome.detail or "")


@pytest.mark.parametrize(("latency_ms", "verdict"), [(1499, UP), (1500, SLOW), (1730, SLOW)])
def test_slow_begins_at_the_threshold(latency_ms: int, verdict: Verdict) -> None:
    outcome = judged(SPEC, Response(status=200), latency_ms=latency_ms)
    assert outcome.verdict is verdict
    assert outcome.reason_code is None
    if verdict is SLOW:
        assert (outcome.detail or "").startswith(f"Answered in {latency_ms} ms, which is slow (threshold 1500 ms)")


def test_transport_comes_before_status_status_before_rules_and_rules_before_speed() -> None:
    spec = replace(SPEC, rules=(ContentRule(RuleType.TEXT_CONTAINS, value="x"),))
    lost = Failure(ReasonCode.PARTIAL_RESPONSE, "Cut short.")
    response = Response(status=500)
    assert judged(spec, response, latency_ms=9999, lost=lost).reason_code is ReasonCode.PARTIAL_RESPONSE
    assert judged(spec, response, latency_ms=9999).reason_code is ReasonCode.HTTP_FAILURE
    response.status = 200
    assert judged(spec, response, latency_ms=9999).reason_code is ReasonCode.CONTENT_FAILURE
    response.body = bytearray(b"x")
    assert judged(spec, response, latency_ms=9999).verdict is SLOW


@given(st.text())
def test_a_detail_is_one_storable_line(text: str) -> None:
    outcome = judged(SPEC, Response(), lost=Failure(ReasonCode.TIMEOUT, text))
    assert outcome.detail is not None
    assert len(outcome.detail) <= 300
    assert outcome.detail.isprintable() or not any(ord(c) < 32 for c in outcome.detail)
    outcome.detail.encode()


@given(st.binary(), st.text(), st.text(max_size=256))
def test_no_detail_from_a_hostile_body_breaks(body: bytes, content_type: str, value: str) -> None:
    spec = replace(SPEC, rules=(ContentRule(RuleType.TEXT_ABSENT, value=value),))
    response = Response(status=200, body=bytearray(body), content_type=content_type)
    (judged(spec, response).detail or "").encode()


@given(st.binary(max_size=6), st.binary(min_size=1, max_size=2))
def test_bytes_in_hex_are_contained_as_they_are(received: bytes, value: bytes) -> None:
    assert contains_bytes(received.hex(), value.hex()) == (value in received)
