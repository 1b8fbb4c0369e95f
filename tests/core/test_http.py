"""The guarded session against real servers that redirect to private addresses, send too much, or never finish."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from core.egress import EgressGuard, parse_networks
from core.http import BodyTooLarge, DeadlineExceeded, ForbiddenTarget, GuardedSession
from core.version import product_version
from tests.processes.up import free_port
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, Repeat, Routes, TargetServer, answer, redirect

LOOPBACK = EgressGuard(parse_networks("127.0.0.1/32, ::1/128"))
NOTHING = EgressGuard()


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_an_answer(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b'{"a": 1}')])
    response = GuardedSession(LOOPBACK).get(site.url("/x"))
    assert (response.status_code, response.json()) == (200, {"a": 1})
    assert site.seen[0].header("user-agent") == f"Pulsekeeper/{product_version()}"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "017700000001", "[::1]", "[::]"]
)
def test_a_forbidden_address_is_refused_however_it_is_spelled(host: str, targets: TargetServer) -> None:
    site = targets.serve([answer()], host="::1" if ":" in host else "127.0.0.1")
    with pytest.raises(ForbiddenTarget):
        GuardedSession(NOTHING).get(site.url(host=host))
    assert site.connections == 0


def test_the_mapped_form_of_a_forbidden_address_is_refused(targets: TargetServer) -> None:
    site = targets.serve([answer()])
    with pytest.raises(ForbiddenTarget):
        GuardedSession(NOTHING).get(site.url(host="[::ffff:127.0.0.1]"))
    assert site.connections == 0


def test_every_hop_is_judged(targets: TargetServer) -> None:
    inner = targets.serve([answer(200, b"secret")], host="127.0.0.2")
    outer = targets.serve({"/": redirect("/again"), "/again": redirect(inner.url())})
    with pytest.raises(ForbiddenTarget):
        GuardedSession(LOOPBACK).get(outer.url())
    assert (len(outer.seen), inner.connections) == (2, 0)


def test_of_the_addresses_of_a_name_a_permitted_one_is_taken(targets: TargetServer) -> None:
    """localhost is ::1 and 127.0.0.1 on most machines; either way only the permitted one is connected to."""
    site = targets.serve([answer(200, b"four")])
    only_v4 = EgressGuard(parse_networks("127.0.0.1/32"))
    assert GuardedSession(only_v4).get(site.url(host="localhost")).text == "four"


def test_a_redirect_out_of_the_schemes_is_refused(targets: TargetServer, certificates: Certificates) -> None:
    plain = targets.serve([answer()])
    secure = targets.serve(redirect(plain.url()), tls=certificates.good())
    session = GuardedSession(LOOPBACK, ca_file=certificates.ca_file, schemes=frozenset({"https"}))
    with pytest.raises(requests.exceptions.InvalidSchema):
        session.get(secure.url())
    with pytest.raises(requests.exceptions.InvalidSchema):
        GuardedSession(LOOPBACK).get("file:///etc/hostname")
    assert plain.connections == 0


def test_redirects_come_to_an_end(targets: TargetServer) -> None:
    site = targets.serve(redirect("/"))
    with pytest.raises(requests.TooManyRedirects):
        GuardedSession(LOOPBACK).get(site.url())
    assert len(site.seen) == 6


def test_certificates_are_verified(targets: TargetServer, certificates: Certificates) -> None:
    good = targets.serve([answer(200, b"fine")], tls=certificates.good())
    trusting = GuardedSession(LOOPBACK, ca_file=certificates.ca_file)
    assert trusting.get(good.url()).text == "fine"
    with pytest.raises(requests.exceptions.SSLError):
        GuardedSession(LOOPBACK).get(good.url())
    expired = targets.serve([answer()], tls=certificates.expired())
    with pytest.raises(requests.exceptions.SSLError):
        trusting.get(expired.url())


BOMB = gzip.compress(b"\0" * (64 * 1024 * 1024))


@pytest.mark.parametrize(
    "routes",
    [
        pytest.param([answer(200, b"x" * 1001)], id="long"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", Repeat(b"x" * 1000)], id="endless"),
        pytest.param([answer(200, BOMB, "Content-Encoding: gzip")], id="bomb"),
        pytest.param([answer(302, BOMB, "Content-Encoding: gzip", "Location: /")], id="bomb on a redirect"),
        pytest.param([answer(500, b"x" * 2000)], id="long error"),
    ],
)
def test_a_body_over_the_cap_is_not_read(routes: Routes, targets: TargetServer) -> None:
    site = targets.serve(routes)
    with pytest.raises(BodyTooLarge):
        GuardedSession(LOOPBACK, max_body=1000).get(site.url())


def test_a_body_of_the_cap_is_read(targets: TargetServer) -> None:
    body = gzip.compress(b"x" * 1000)
    site = targets.serve([answer(200, body, "Content-Encoding: gzip")])
    assert GuardedSession(LOOPBACK, max_body=1000).get(site.url(), stream=True).content == b"x" * 1000


@pytest.mark.parametrize(
    "routes",
    [
        pytest.param([Hang()], id="silent"),
        pytest.param([b"HTTP/1.1 200 OK\r\nX: ", Repeat(b"y", 0.02)], id="dripping head"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", Repeat(b"y", 0.02)], id="dripping"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", Repeat(b"y", 0.02)], id="dripping without a length"),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_one_deadline_for_everything(
    routes: Routes, tls: bool, targets: TargetServer, certificates: Certificates
) -> None:
    site = targets.serve(routes, tls=certificates.good() if tls else None)
    session = GuardedSession(LOOPBACK, ca_file=certificates.ca_file, total_sec=0.4)
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        session.get(site.url())
    assert 0.3 < time.monotonic() - start < 3


def test_redirects_share_the_deadline(targets: TargetServer) -> None:
    site = targets.serve({"/": redirect("/slow"), "/slow": [Hang()]})
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        GuardedSession(LOOPBACK).get(site.url(), timeout=0.4)
    assert time.monotonic() - start < 3


def test_a_handshake_that_stalls_is_cut_off(certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(requests.Timeout):
            GuardedSession(LOOPBACK, total_sec=0.3).get(f"https://127.0.0.1:{port}/")


def test_nothing_of_the_environment_counts(
    targets: TargetServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificates.ca_file)
    plain = targets.serve([answer()])
    GuardedSession(LOOPBACK).get(plain.url())
    assert plain.seen[0].header("authorization") is None
    secure = targets.serve([answer()], tls=certificates.good())
    with pytest.raises(requests.exceptions.SSLError):
        GuardedSession(LOOPBACK).get(secure.url())


def test_no_cookie_is_sent_back(targets: TargetServer) -> None:
    site = targets.serve({"/": [answer(302, b"", "Location: /next", "Set-Cookie: a=b")], "/next": [answer()]})
    session = GuardedSession(LOOPBACK)
    session.get(site.url())
    session.get(site.url())
    assert len(site.seen) == 4
    assert all(request.header("cookie") is None for request in site.seen)
    assert len(session.cookies) == 0


def test_a_name_without_an_address_and_a_closed_port() -> None:
    port = free_port()
    for url in (f"http://127.0.0.1:{port}/", "http://no-such-name.invalid/"):
        with pytest.raises(requests.ConnectionError) as caught:
            GuardedSession(LOOPBACK).get(url)
        assert not isinstance(caught.value, ForbiddenTarget)


COOKIES = [f"{name}: {'a;' * 30_000}" for name in ("Set-Cookie2", "Set-Cookie") for _ in range(45)]
SLOW_TO_READ = [
    answer(200, b"{}", *COOKIES),
    answer(200, b"a" * 400_000 + b"-" + b"aaab" * 100_000, "Content-Type: text/plain; charset=punycode"),
    answer(302, b"", "Location: http://a" + "\u0301\u0327" * 10_000),
]


@pytest.mark.parametrize("response", SLOW_TO_READ, ids=["cookies", "charset", "host"])
def test_no_answer_takes_long_to_read(response: bytes, targets: TargetServer) -> None:
    site = targets.serve([response])
    before = time.thread_time()
    with contextlib.suppress(requests.exceptions.InvalidURL, requests.exceptions.JSONDecodeError):
        GuardedSession(LOOPBACK).get(site.url()).json()
    assert time.thread_time() - before < 0.5  # of CPU, and most of it in loading certificates
