"""Requests of commands to a server: trusted certificates, where the token is sent, and timeouts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli import UnreachableError, UsageError
from pulsekeeper.client import AnswerLostError, Server, find_token, server_of
from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer, answer


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("PULSEKEEPER_", "SSL_CERT_")):
            monkeypatch.delenv(name)


def get(site_url: str, *, patience_sec: float = 60) -> int:
    server = Server(site_url, token="svc_x")
    return server.request("GET", "/v1/monitors", timeout_sec=5, patience_sec=patience_sec).status


def test_authorities_of_the_environment_are_trusted(
    targets: TargetServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    url = targets.serve([answer(200, b"[]")], tls=certificates.good()).url()
    with pytest.raises(UnreachableError, match="certificate is not trusted"):
        get(url)
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca_file)
    assert get(url) == 200
    wrong = targets.serve([answer(200, b"[]")], tls=certificates.other_host()).url()
    with pytest.raises(UnreachableError, match="certificate is not trusted"):
        get(wrong)


def test_a_server_that_asks_to_wait_is_asked_again_in_time(targets: TargetServer) -> None:
    busy = answer(429, b"{}", "Retry-After: 1")
    seen: list[int] = []

    def once_busy(_: object) -> list[bytes]:
        seen.append(1)
        return [busy if len(seen) == 1 else answer(200, b"[]")]

    assert get(targets.serve(once_busy).url()) == 200
    assert len(seen) == 2
    always = targets.serve([answer(503, b"{}", "Retry-After: 3600")])
    assert get(always.url(), patience_sec=30) == 503, "returned at once: an hour is too long"
    assert len(always.seen) == 1


def test_redirects_are_not_followed(targets: TargetServer) -> None:
    other = targets.serve([answer(200, b"[]")])
    server = Server(targets.serve([answer(307, b"", f"Location: {other.url()}")]).url(), token="svc_x")
    found = server.request("POST", "/v1/manifest", {}, timeout_sec=5)
    assert (found.status, other.seen) == (307, [])
    assert "redirects to" in str(server.failure(found))


def test_an_answer_that_breaks_off_is_no_unreachable_server(targets: TargetServer) -> None:
    site = targets.serve([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
    with pytest.raises(AnswerLostError):
        get(site.url())
    with pytest.raises(UnreachableError) as error:
        get("http://127.0.0.1:1")
    assert not isinstance(error.value, AnswerLostError)


def test_where_a_token_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("svc_file\n")
    with pytest.raises(UsageError, match="PULSEKEEPER_TOKEN"):
        find_token(None)
    monkeypatch.setenv("PULSEKEEPER_TOKEN_FILE", str(file))
    assert find_token(None) == ("svc_file\n", str(file))
    monkeypatch.setenv("PULSEKEEPER_TOKEN", "svc_variable")
    assert find_token(None) == ("svc_variable", "PULSEKEEPER_TOKEN")
    assert find_token(file) == ("svc_file\n", str(file))
    with pytest.raises(UsageError, match="No such file"):
        find_token(tmp_path / "none")


def test_an_error_names_where_the_token_came_from(targets: TargetServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    options = {"url": targets.serve([answer(401, b"{}")]).url(), "token_file": file}
    with pytest.raises(UsageError, match=f"{file} contains no token"):
        server_of(options)
    file.write_text("svc_expired\n")
    server = server_of(options)
    assert f"the token in {file}," in str(server.failure(server.request("GET", "/v1/monitors", timeout_sec=5)))


def test_a_proxy_that_refuses_and_a_name_that_is_unknown(
    targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnreachableError, match="cannot be resolved"):
        get("http://none.invalid")
    proxy = targets.serve([answer(407, b"", "Proxy-Authenticate: Basic")])
    monkeypatch.setenv("https_proxy", proxy.url())
    with pytest.raises(UnreachableError, match="the proxy refuses with status 407"):
        get("https://shop.example")


def test_a_body_that_the_server_would_refuse_is_not_sent(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b"{}")])
    with pytest.raises(UsageError, match="102 bytes, and a server accepts 100"):
        Server(site.url(), token="svc_x").request("PUT", "/v1/manifest", "x" * 100, timeout_sec=5, max_bytes=100)
    assert site.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "shop.example",
        "ftp://shop.example",
        "https://",
        "https://a b/",
        "https://me:secret@shop.example",
        "https://x/?a",
        "https://x/#",
    ],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError) as error:
        server_of({"url": url, "token_file": Path(os.devnull)})
    assert "secret" not in str(error.value)
