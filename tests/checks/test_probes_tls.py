"""The engine against servers with good and bad certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.tcp.spec import TcpSpec
from checks.probes.trust import trusted_folder
from checks.spec import CheckSpec, ReasonCode, Verdict
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


def specs_of(site: Any, **given: Any) -> list[CheckSpec]:
    return [HttpSpec(site.url(), **given), TcpSpec(host="127.0.0.1", port=site.port, tls=True, **given)]


def test_a_ca_certificate_counts_for_its_own_checks_alone(engine: ProbeEngine, targets: TargetServer) -> None:
    own, other = trustme.CA(organization_name="  Ünï  Ltd "), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.issue_cert("127.0.0.1", not_after=GOOD_UNTIL).configure_cert(context)
    site = targets.serve([answer()], tls=context)
    trusted, wrong = (ca.cert_pem.bytes().decode() for ca in (own, other))
    for _ in range(2):  # handles and contexts are reused
        for spec in specs_of(site, ca_certificate=trusted):
            assert engine.check(spec).verdict is Verdict.UP
        for spec in specs_of(site):
            assert "issuer is unknown" in (engine.check(spec).detail or "")
        for spec in specs_of(site, ca_certificate=wrong):
            outcome = engine.check(spec)
            assert "issuer is unknown" in (outcome.detail or "")
            assert outcome.evidence is not None
            assert ("certificate check", "by the monitor's CA certificate and the system's authorities") in (
                outcome.evidence.facts
            )


def test_a_ca_certificate_is_added_to_those_of_the_system(
    engine: ProbeEngine, targets: TargetServer, certificates: Certificates
) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    for spec in specs_of(site, ca_certificate=trustme.CA().cert_pem.bytes().decode()):
        assert engine.check(spec).verdict is Verdict.UP
        for file in Path(trusted_folder(certificates.ca_file)).iterdir():  # like cleanups of old temporary files
            file.unlink()
        assert engine.check(spec).verdict is Verdict.UP


@pytest.mark.parametrize(("make", "words", "expires_at"), BAD)
def test_without_verification_any_certificate_is_accepted(
    make: Callable[[Certificates], ssl.SSLContext],
    words: str,
    expires_at: datetime,
    engine: ProbeEngine,
    targets: TargetServer,
    certificates: Certificates,
) -> None:
    site = targets.serve([answer()], tls=make(certificates))
    for spec in specs_of(site, tls_verify=False):
        outcome = engine.check(spec)
        assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, expires_at)
    assert words in (engine.check(HttpSpec(site.url())).detail or "")
    failed = engine.check(HttpSpec(site.url(), tls_verify=False, expect_status=404))
    assert failed.evidence is not None
    assert failed.evidence.facts == (("certificate check", "off: any certificate is accepted"),)
