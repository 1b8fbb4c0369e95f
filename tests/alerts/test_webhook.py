"""Signed webhooks to real receivers, good and misbehaving ones."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from alerts.transports import KINDS
from alerts.transports import http as transport
from core.http import GuardedSession
from notifications.outbox import SendResult
from tests.alerts import samples
from tests.alerts.samples import NOW
from tests.processes.up import free_port
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, Pause, Repeat, Reset, Routes, TargetServer, Unasked, answer, redirect

SECRET = "whsec_b5XkP0"
DOCUMENT = Path(__file__).parents[2] / "docs" / "use" / "webhooks.md"


def deliver(url: str, *, name: str = "down") -> SendResult:
    return KINDS["webhook"].send({"url": url, "secret": SECRET}, samples.rendered(name), key="dlv_1", now=NOW)


def documented(language: str) -> str:
    """The example of a language in docs/use/webhooks.md."""
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_a_receiver_that_checks_as_documented(targets: TargetServer) -> None:
    site = targets.serve([answer(204)])
    assert deliver(site.url("/hooks/x?y=z")) == SendResult(delivered=True, detail="The receiver answered 204.")
    (request,) = site.seen
    assert (request.method, request.path) == ("POST", "/hooks/x?y=z")
    assert request.header("content-type") == "application/json"
    assert request.header("pulsekeeper-delivery") == "dlv_1"
    assert request.header("pulsekeeper-timestamp") == str(int(NOW.timestamp()))
    assert json.loads(request.body) == samples.rendered("down").webhook_body

    example: dict[str, Any] = {}
    exec(documented("python"), example)
    is_genuine = example["is_genuine"]
    signed = {
        "timestamp": request.header("pulsekeeper-timestamp"),
        "signature": request.header("pulsekeeper-signature"),
        "secret": SECRET,
        "now": NOW.timestamp(),
    }
    assert is_genuine(request.body, **signed)
    assert not is_genuine(request.body + b" ", **signed)
    assert not is_genuine(request.body, **signed | {"secret": "another"})
    assert not is_genuine(request.body, **signed | {"timestamp": str(int(NOW.timestamp()) + 1)})
    assert not is_genuine(request.body, **signed | {"now": NOW.timestamp() + 301})
    assert not is_genuine(request.body, **signed | {"signature": "v1="})
    assert not is_genuine(request.body, **signed | {"timestamp": "soon"})


def test_the_documented_payload_is_the_sample() -> None:
    assert json.loads(documented("json")) == samples.rendered("down").webhook_body


def test_what_a_receiver_does_and_what_is_made_of_it(targets: TargetServer) -> None:
    def outcome(routes: Routes) -> tuple[bool, bool, str]:
        site = targets.serve(routes)
        made = deliver(site.url())
        assert len(site.seen) == 1
        return made.delivered, made.retry, made.detail

    assert outcome([answer(200, b"thanks")]) == (True, True, "The receiver answered 200.")
    assert outcome([answer(500, b'{"error": "no\x1b\r\nluck"}')]) == (
        False,
        True,
        'The receiver answered 500: "{"error": "no luck"}".',
    )
    assert outcome([answer(404)]) == (False, True, "The receiver answered 404.")
    assert outcome([answer(410, b"gone")]) == (False, False, 'The receiver answered 410: "gone".')
    assert outcome([answer(500, b"x" * 60_000)])[2].endswith('xxx…".')


def test_redirects_are_not_followed(targets: TargetServer) -> None:
    inner = targets.serve([answer()], host="127.0.0.2")
    for status in (301, 302, 303, 307, 308):
        outer = targets.serve(redirect(inner.url(), status))
        assert deliver(outer.url()) == SendResult(
            delivered=False, detail=f"The receiver answered {status}; redirects of a webhook are not followed."
        )
    assert inner.connections == 0


LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


def test_a_gigabyte_is_not_read(targets: TargetServer) -> None:
    site = targets.serve([LONG, Repeat(b"x" * 65_536)])
    assert deliver(site.url()) == SendResult(delivered=True, detail="The receiver answered 200.")
    failing = targets.serve([LONG.replace(b"200", b"503"), Repeat(b"x" * 65_536)])
    assert deliver(failing.url()).detail == "The receiver answered 503."


SLOW = "The receiver did not answer within 10 seconds."
BROKEN = "The connection to the receiver broke before it answered."


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        pytest.param([Hang()], SLOW, id="hangs"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", Hang()], SLOW, id="hangs within the head"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", Repeat(b"X", 0.05)], SLOW, id="a byte now and then, head"),
        pytest.param([LONG, Repeat(b"x", 0.05)], SLOW, id="a byte now and then, body"),
        pytest.param([], BROKEN, id="closes"),
        pytest.param([Reset()], BROKEN, id="resets"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], BROKEN, id="no HTTP"),
        pytest.param([answer(200, b"x", length=100)], BROKEN, id="breaks off"),
    ],
)
def test_a_receiver_gone_wrong_is_one_bounded_request(
    targets: TargetServer, monkeypatch: pytest.MonkeyPatch, script: Any, detail: str
) -> None:
    monkeypatch.setattr(
        transport, "_session", lambda guard, **kwargs: GuardedSession(guard, **kwargs | {"total_sec": 0.5})
    )
    site = targets.serve(script)
    start = time.monotonic()
    assert deliver(site.url()) == SendResult(delivered=False, detail=detail)
    assert time.monotonic() - start < 5
    assert site.connections == 1


def test_nothing_listens() -> None:
    port = free_port()
    assert deliver(f"http://127.0.0.1:{port}/").detail == "The receiver refused the connection."
    assert deliver("https://no-such-name.invalid/").detail == "The receiver's host name has no address."


def test_no_private_address(targets: TargetServer, settings: Settings) -> None:
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    site = targets.serve([answer()])
    for host in ("127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"):
        assert deliver(site.url(host=host)) == SendResult(
            delivered=False,
            detail="The receiver's address is private or reserved, and Pulsekeeper does not connect to it.",
        )
    assert site.connections == 0


def test_certificates_are_verified(targets: TargetServer, settings: Settings, certificates: Certificates) -> None:
    settings.SSL_CERT_FILE = certificates.ca_file
    good = targets.serve([answer()], tls=certificates.good())
    assert deliver(good.url()).delivered
    for context, said in (
        (certificates.expired(), "certificate has expired"),
        (certificates.other_host(), "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        (certificates.unknown_issuer(), "unable to get local issuer certificate"),
    ):
        bad = targets.serve([answer()], tls=context)
        outcome = deliver(bad.url())
        assert outcome.detail == f"The receiver's certificate is not valid: {said}."
        assert bad.seen == []
    silent = targets.serve(Unasked([b"no TLS here", Pause(0)]))
    assert deliver(silent.url().replace("http:", "https:")).detail == (
        "No TLS connection to the receiver could be made."
    )


@pytest.mark.parametrize("url", ["ftp://x.example/", "http://", "http://a..example/", f"http://{'x' * 70}.example/"])
def test_an_address_that_cannot_be_used(url: str) -> None:
    outcome = deliver(url)
    assert not outcome.delivered
    assert outcome.detail
