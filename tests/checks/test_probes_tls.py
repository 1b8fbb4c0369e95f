"""The engine against servers with good and bad certificates."""

from __future__ import annotations

import socket
import ssl
import threading
import warnings
from collections.abc import Callable
from datetime import datetime

import pytest

from checks.probes import ProbeEngine
from checks.spec import CheckSpec, ReasonCode, Verdict
from tests.checks.conftest import LOOPBACK
from tests.targets.certificates import EXPIRED_AT, GOOD_UNTIL, Certificates
from tests.targets.server import Hang, Reset, TargetServer, answer, redirect


def test_a_good_certificate(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    for host in (None, "localhost"):
        outcome = engine.check(CheckSpec(site.url(host=host), check_ssl=True))
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
    outcome = engine.check(CheckSpec(site.url(), check_ssl=check_ssl))
    assert outcome.verdict is Verdict.DOWN
    assert outcome.reason_code is (ReasonCode.TLS_FAILURE if check_ssl else ReasonCode.CONNECTION_FAILURE)
    assert (outcome.detail or "").startswith("SSL problem: ") is check_ssl
    assert words in (outcome.detail or "")
    assert outcome.cert_expires_at == expires_at
    assert site.seen == []


def test_the_trust_store_is_the_given_one(targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    outcome = ProbeEngine(LOOPBACK).check(CheckSpec(site.url(), check_ssl=True))
    assert "issuer is unknown" in (outcome.detail or "")


def test_old_tls_is_not_spoken(
    engine: ProbeEngine, targets: TargetServer, certificates: Certificates
) -> None:
    context = certificates.good()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is deprecated is the case
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    site = targets.serve([answer()], tls=context)
    assert engine.check(CheckSpec(site.url(), check_ssl=True)).reason_code is ReasonCode.TLS_FAILURE
    assert site.seen == []


def test_plain_http_where_tls_is_meant(engine: ProbeEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak_first() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(answer(400))
                connection.recv(65_536)

        thread = threading.Thread(target=speak_first)
        thread.start()
        outcome = engine.check(CheckSpec(f"https://127.0.0.1:{listening.getsockname()[1]}/", check_ssl=True))
        thread.join(10)
    assert outcome.reason_code is ReasonCode.TLS_FAILURE
    assert "does not speak TLS" in (outcome.detail or "")


def test_a_handshake_that_stalls(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([Hang()])
    outcome = engine.check(CheckSpec(site.url().replace("http:", "https:"), check_ssl=True, timeout_ms=300))
    assert (outcome.verdict, outcome.reason_code) == (Verdict.DOWN, ReasonCode.TIMEOUT)
    assert "handshake" in (outcome.detail or "")


def test_from_http_to_https(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    secure = targets.serve([answer()], tls=certificates.good())
    site = targets.serve(redirect(secure.url()))
    outcome = engine.check(CheckSpec(site.url(), follow_redirects=True, headers=(("X-Key", "secret"),)))
    assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, GOOD_UNTIL)
    assert secure.seen[0].header("x-key") is None


def test_a_reset_after_the_handshake(
    engine: ProbeEngine, targets: TargetServer, certificates: Certificates
) -> None:
    site = targets.serve([Reset()], tls=certificates.good())
    outcome = engine.check(CheckSpec(site.url(), check_ssl=True))
    assert outcome.reason_code is ReasonCode.CONNECTION_FAILURE
    assert outcome.cert_expires_at == GOOD_UNTIL
