"""The engine against servers with good and bad certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.spec import ReasonCode, Verdict
from tests.checks.conftest import LOOPBACK
from tests.targets.certificates import EXPIRED_AT, GOOD_UNTIL, Certificates
from tests.targets.server import Reset, TargetServer, answer, redirect


def test_a_good_certificate(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    for host in (None, "localhost"):
        outcome = engine.check(HttpSpec(site.url(host=host), check_ssl=True))
        assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, GOOD_UNTIL)
        assert (outcome.connect_ms or 0) <= (outcome.ttfb_ms or 0) <= (outcome.latency_ms or 0)


BAD = [
    pytest.param(Certificates.expired, "expired", EXPIRED_AT, id="expired"),
    pytest.param(Certificates.other_host, "another host", GOOD_UNTIL, id="wrong host"),
    pytest.param(Certificates.self_signed, "self-signed", GOOD_UNTIL, id="self-signed"),
    pytest.param(Certificates.unknown_issuer, "issuer is unknown", GOOD_UNTIL, id="unknown issuer"),
]


@pytest.mark.parametrize(("make", "words", "expires_at"), BAD)
@pytest.mark.parametrize("check_ssl", [True, False])
def test_a_bad_certificate(
    make: Callable[[Certificates], ssl.SSLContext],
    words: str,
    expires_at: datetime,
    check_ssl: bool,
    engine: ProbeEngine,
    targets: TargetServer,
    certificates: Certificates,
) -> None:
    site = targets.serve([answer()], tls=make(certificates))
    outcome = engine.check(HttpSpec(site.url(), check_ssl=check_ssl))
    assert outcome.verdict is Verdict.DOWN
    assert outcome.reason_code is (ReasonCode.TLS_FAILURE if check_ssl else ReasonCode.CONNECTION_FAILURE)
    assert (outcome.detail or "").startswith("SSL problem: ") is check_ssl
    assert words in (outcome.detail or "")
    assert outcome.cert_expires_at == expires_at
    assert site.seen == []


def test_the_trust_store_is_the_given_one(targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    outcome = ProbeEngine(LOOPBACK).check(HttpSpec(site.url(), check_ssl=True))
    assert "issuer is unknown" in (outcome.detail or "")


def test_from_http_to_https(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    secure = targets.serve([answer()], tls=certificates.good())
    site = targets.serve(redirect(secure.url()))
    outcome = engine.check(HttpSpec(site.url(), follow_redirects=True, headers=(("X-Key", "secret"),)))
    assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, GOOD_UNTIL)
    assert secure.seen[0].header("x-key") is None


def test_a_reset_after_the_handshake(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([Reset()], tls=certificates.good())
    outcome = engine.check(HttpSpec(site.url(), check_ssl=True))
    assert outcome.reason_code is ReasonCode.CONNECTION_FAILURE
    assert outcome.cert_expires_at == GOOD_UNTIL
