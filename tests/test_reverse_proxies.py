"""The samples of reverse proxies, each run by the real proxy in front of an upstream that echoes requests."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trustme

from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.proxies import NAME, PROXIES, Connection, find_program

START_SECONDS = 60

CLAIMED = dict.fromkeys(("X-Forwarded-For", "X-Forwarded-Host", "X-Request-ID"), "203.0.113.66") | {
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Port": "66",
    "Forwarded": "for=203.0.113.66",
}
"""Without headers that contain an underscore: web drops them."""


class Echo(BaseHTTPRequestHandler):
    """Echo requests. /changes answers with an event, and ends when the client has disconnected."""

    def do_POST(self) -> None:
        if self.path == "/changes":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("X-Accel-Buffering", "no")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"data: changed\n\n")
            self.rfile.read(1)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        found = json.dumps({"headers": self.headers.items(), "size": len(body)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA, upstream: int
) -> Iterator[Callable[..., http.client.HTTPResponse]]:
    """Yield `ask(method, path, body, headers)` through a running proxy."""
    program = find_program(request.param)
    if program is None:
        pytest.skip(f"{request.param} cannot be run: it needs apt-get install {request.param}, or a package index")
    folder = tmp_path_factory.mktemp(request.param)
    certificate = authority.issue_cert(NAME)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    plain, secure = free_port(), free_port()
    with (
        PROXIES[request.param](program, folder, upstreams=(upstream, upstream), plain=plain, secure=secure),
        ExitStack() as connections,
    ):
        context = ssl.create_default_context()
        authority.configure_trust(context)

        def ask(
            method: str = "GET", path: str = "/", body: bytes | None = None, headers: dict[str, str] | None = None
        ) -> http.client.HTTPResponse:
            connection = Connection("127.0.0.1", secure, timeout=START_SECONDS, context=context)
            connections.callback(connection.close)
            connection.request(method, path, body, {"Host": NAME, **(headers or {})})
            return connection.getresponse()

        until(lambda: answers(ask), START_SECONDS, f"{request.param} answers")
        yield ask


def answers(ask: Callable[..., http.client.HTTPResponse]) -> bool:
    try:
        return ask().status == 200
    except OSError:
        return False


Ask = Callable[..., http.client.HTTPResponse]


def test_what_a_client_claims_of_itself_does_not_arrive(proxy: Ask) -> None:
    found: dict[str, list[str]] = {}
    for name, value in json.load(proxy(headers=CLAIMED))["headers"]:
        found.setdefault(name.lower(), []).append(value)
    assert found["host"] == [NAME]
    assert found["x-forwarded-for"] == ["127.0.0.1"]
    assert found["x-forwarded-proto"] == ["https"]
    # Traefik adds no request id, but the host and port at which it was reached.
    assert [len(one) for one in found.get("x-request-id", [])] in ([], [32], [36])
    assert not set(CLAIMED.values()) & {value for values in found.values() for value in values}


def test_the_largest_logo_passes_and_no_more(proxy: Ask) -> None:
    logo = 1024 * 1024 * 4 // 3 + 1_024
    assert json.load(proxy("POST", "/v1/x", b"x" * logo))["size"] == logo
    # Caddy 2.6 notices while it sends and answers 502.
    assert proxy("POST", "/v1/x", b"x" * 3_000_000).status in {413, 502}


def test_events_of_a_stream_are_passed_on_while_it_is_open(proxy: Ask) -> None:
    answer = proxy(path="/changes")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.readline() == b"data: changed\n"


def test_metrics_are_for_the_inside(proxy: Ask) -> None:
    assert proxy(path="/metrics").status == 404
