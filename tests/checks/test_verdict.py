from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.probes.http.spec import ContentRule, HttpSpec, RuleType
from checks.probes.http.verdict import Exchange, judge
from checks.spec import ReasonCode, Verdict
from checks.verdict import Failure

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SPEC = HttpSpec("https://target.example/", method="GET", slow_ms=1500)
UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN


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
    outcome = judge(spec, Exchange(http_status=status, latency_ms=5), now=NOW)
    assert outcome.verdict is verdict
    assert outcome.http_status == status
    assert (outcome.detail is None) is (verdict is UP)
    if verdict is DOWN:
        assert outcome.reason_code is ReasonCode.HTTP_FAILURE
        assert str(status) in (outcome.detail or "")


@pytest.mark.parametrize(("latency_ms", "verdict"), [(1499, UP), (1500, SLOW), (1730, SLOW)])
def test_slow_begins_at_the_threshold(latency_ms: int, verdict: Verdict) -> None:
    outcome = judge(SPEC, Exchange(http_status=200, latency_ms=latency_ms), now=NOW)
    assert outcome.verdict is verdict
    assert outcome.reason_code is None
    if verdict is SLOW:
        assert (outcome.detail or "").startswith(f"Answered in {latency_ms} ms, and from 1500 ms on")


def test_transport_comes_before_status_status_before_rules_and_rules_before_speed() -> None:
    spec = replace(SPEC, rules=(ContentRule(RuleType.TEXT_CONTAINS, value="x"),))
    lost = Failure(ReasonCode.PARTIAL_RESPONSE, "Cut short.")
    exchange = Exchange(failure=lost, http_status=500, latency_ms=9999)
    assert judge(spec, exchange, now=NOW).reason_code is ReasonCode.PARTIAL_RESPONSE
    exchange.failure = None
    assert judge(spec, exchange, now=NOW).reason_code is ReasonCode.HTTP_FAILURE
    exchange.http_status = 200
    assert judge(spec, exchange, now=NOW).reason_code is ReasonCode.CONTENT_FAILURE
    exchange.body = b"x"
    assert judge(spec, exchange, now=NOW).verdict is SLOW


def test_timings_are_not_split_where_redirects_are_followed() -> None:
    exchange = Exchange(http_status=200, latency_ms=30, connect_ms=10, ttfb_ms=20)
    assert judge(SPEC, exchange, now=NOW).connect_ms == 10
    outcome = judge(replace(SPEC, follow_redirects=True), exchange, now=NOW)
    assert (outcome.latency_ms, outcome.connect_ms, outcome.ttfb_ms) == (30, None, None)


@given(st.text())
def test_a_detail_is_one_storable_line(text: str) -> None:
    outcome = judge(SPEC, Exchange(failure=Failure(ReasonCode.TIMEOUT, text)), now=NOW)
    assert outcome.detail is not None
    assert len(outcome.detail) <= 300
    assert outcome.detail.isprintable() or not any(ord(c) < 32 for c in outcome.detail)
    outcome.detail.encode()


@given(st.binary(), st.text(), st.text(max_size=256))
def test_no_detail_from_a_hostile_body_breaks(body: bytes, content_type: str, value: str) -> None:
    spec = replace(SPEC, rules=(ContentRule(RuleType.TEXT_ABSENT, value=value),))
    exchange = Exchange(http_status=200, latency_ms=1, body=body, content_type=content_type)
    (judge(spec, exchange, now=NOW).detail or "").encode()
