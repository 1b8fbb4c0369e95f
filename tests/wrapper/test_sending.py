"""What an attempt to send a signal makes of each answer."""

from __future__ import annotations

import ssl

import pytest
import trustme

from pulsekeeper.run.sending import Sent, send
from tests.targets.server import Hang, Reset, Script, TargetServer, answer

AWAY = "the server cannot be reached"


@pytest.mark.parametrize(
    ("script", "sent"),
    [
        ([answer(200)], Sent()),
        ([answer(404)], Sent("the heartbeat does not exist")),
        ([answer(422)], Sent("the server answers with status 422")),
        ([answer(302, b"", "Location: https://other.example/SECRET")], Sent("the server redirects to another address")),
        ([answer(302, b"", "Location: http://[")], Sent("the server redirects to another address")),
        ([answer(429, b"", "Retry-After: 7")], Sent("the server answers with status 429", retry=True, wait_sec=7)),
        ([answer(429, b"", "Retry-After: soon")], Sent("the server answers with status 429", retry=True)),
        ([answer(503)], Sent("the server answers with status 503", retry=True)),
        ([Reset()], Sent(AWAY, retry=True)),
        ([b"SSH-2.0-OpenSSH_10.0\r\n"], Sent(AWAY, retry=True)),
        ([Hang()], Sent("the server does not answer in time", retry=True)),
    ],
)
def test_answers(targets: TargetServer, script: Script, sent: Sent) -> None:
    assert send(targets.serve(script).url("/SECRET/ping/0"), b"body", timeout_sec=0.5) == sent


def test_a_certificate_that_is_not_trusted(targets: TargetServer) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    site = targets.serve([answer(200)], tls=context)
    assert send(site.url("/SECRET/ping/0"), b"", timeout_sec=5) == Sent("its certificate is not trusted")
    assert site.seen == []


def test_a_name_that_does_not_exist() -> None:
    assert send("http://pulsekeeper.invalid/SECRET/ping/0", b"", timeout_sec=5) == Sent(AWAY, retry=True)
