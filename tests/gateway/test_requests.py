"""Requests of hostile clients: slow, large, many, and with headers that only proxies may send."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import pytest
import requests
from django.core.handlers.wsgi import WSGIHandler
from pytest_django.fixtures import Settings

from config import bodies, gateway, shares
from config.gateway import Gateway
from core import metrics
from core.turns import paused, take_time
from tests.processes.waiting import until
from tests.serving import serving

PATIENCE_SEC = 30


class Echo:
    """A WSGI application that echoes the request body once `go` is set. `pauses`: it gives up its turn to wait."""

    def __init__(self) -> None:
        self.pauses = False
        self.go = threading.Event()
        self.go.set()
        self.environs: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.environs.append(environ)
        if environ["PATH_INFO"].startswith("/patient"):
            take_time()
        with paused() if self.pauses else nullcontext():
            assert self.go.wait(PATIENCE_SEC)
        body = environ["wsgi.input"].read()
        start_response("200 OK", [("Content-Type", "text/plain"), ("X-Length", str(len(body)))])
        return Parts([body])


class Parts:
    """Like Django's responses: iterable, and closed by the server."""

    def __init__(self, parts: Iterable[bytes], *, streaming: bool = False) -> None:
        self._parts = parts
        self.streaming = streaming
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def port(echo: Echo) -> Iterator[int]:
    with serving(Gateway(echo)) as port:
        yield port


@contextmanager
def sent(port: int, head: str, body: bytes = b"", *, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Open a connection and send this part of a request. `head`: its lines, without the empty line at the end."""
    lines = "\r\n".join(line.strip() for line in head.strip().splitlines())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SEC, source_address=(address, 0)) as client:
        client.sendall(lines.encode("latin-1") + b"\r\n\r\n" + body)
        yield client


def answer_on(client: socket.socket) -> tuple[int, bytes]:
    """Return status and body of a response after which the connection is closed."""
    received = b""
    while part := client.recv(65_536):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


BEARER = f"Bearer svc_{'a' * 68}"
CREDENTIALS = [{}, {"Authorization": BEARER}, {"Cookie": "a=b; sessionid=abc"}]

HALF = """
    POST {path} HTTP/1.1
    Host: 127.0.0.1
    Content-Type: application/json
    Content-Length: 100
"""


def test_half_sent_bodies_hold_no_thread(echo: Echo, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODIES_OF_CLIENT", 1_000)
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(sent(port, HALF.format(path="/v1/sessions"), b'{"email": '))
        for path in ("/readyz", "/v1/monitors", "/status/page"):
            assert requests.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SEC).status_code == 200
    assert [environ["PATH_INFO"] for environ in echo.environs] == ["/readyz", "/v1/monitors", "/status/page"]


def test_a_body_that_does_not_arrive_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SEC", 0.2)
    with sent(port, HALF.format(path="/v1/sessions"), b'{"email": ') as client:
        status, body = answer_on(client)
    assert (status, json.loads(body)["error"]) == (408, "request_timeout")


def test_a_client_that_leaves_in_the_middle_of_its_body(echo: Echo, port: int) -> None:
    with sent(port, HALF.format(path="/v1/sessions"), b'{"email": '):
        pass
    assert requests.get(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SEC).status_code == 200
    assert [environ["PATH_INFO"] for environ in echo.environs] == ["/readyz"]


def test_one_client_has_few_bodies_at_a_time(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(bodies.BODIES_OF_CLIENT):
            stack.enter_context(sent(port, HALF.format(path="/v1/sessions"), b"{"))

        def is_refused() -> bool:
            found = requests.post(f"http://127.0.0.1:{port}/", data=b"{}", timeout=PATIENCE_SEC)
            return found.status_code == 429 and bool(found.headers["Retry-After"])

        until(is_refused, PATIENCE_SEC, "the next body is refused")
        with requests.Session() as other:
            other.mount("http://", From("127.0.0.5"))
            assert other.post(f"http://127.0.0.1:{port}/", data=b"{}", timeout=PATIENCE_SEC).status_code == 200
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SEC).status_code == 200


class From(requests.adapters.HTTPAdapter):
    """Connects from this address."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._address, 0), **kwargs)


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_that_is_too_large(
    echo: Echo, port: int, settings: Settings, declared: bool, credential: dict[str, str]
) -> None:
    most = settings.MAX_BODY_BYTES if credential else bodies.ANONYMOUS_BYTES
    head = HALF.format(path="/account/login") + "".join(f"{name}: {value}\n" for name, value in credential.items())
    if declared:
        head = head.replace("100", str(100 * most))
        chunk = b""
    else:
        head = head.replace("Content-Length: 100", "Transfer-Encoding: chunked")
        chunk = b"%x\r\n%b\r\n" % (most + 1, b"x" * (most + 1))
    with sent(port, head, chunk) as client:
        status, body = answer_on(client)
    assert (status, json.loads(body)) == (
        413,
        {"error": "body_too_large", "reason": "The body is larger than allowed.", "limit": most},
    )
    assert not echo.environs


def test_a_body_in_very_small_chunks(echo: Echo, port: int) -> None:
    """A megabyte of them from any client used to block the event loop of the web process for seconds."""
    head = HALF.format(path="/v1/sessions").replace("Content-Length: 100", "Transfer-Encoding: chunked")
    few, many = (b"1\r\n \r\n" * count for count in (bodies.FREE_PARTS - 5, bodies.FREE_PARTS + 5))
    with sent(port, head, many) as client:
        status, body = answer_on(client)
    assert (status, json.loads(body)["reason"]) == (413, "The body has too many small chunks.")
    assert not echo.environs
    with sent(port, head, few + b"0\r\n\r\n") as client:
        assert answer_on(client)[0] == 200
    assert echo.environs


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_arrives_whole(
    echo: Echo, port: int, settings: Settings, chunked: bool, credential: dict[str, str]
) -> None:
    most = settings.MAX_BODY_BYTES if credential else bodies.ANONYMOUS_BYTES
    body = bytes(range(256)) * (most // 256)
    data: Any = iter([body[:1000], body[1000:]]) if chunked else body
    found = requests.post(f"http://127.0.0.1:{port}/", data=data, headers=credential, timeout=PATIENCE_SEC)
    assert (found.status_code, found.content) == (200, body)
    assert echo.environs[0]["CONTENT_LENGTH"] == str(len(body))


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer svc_short"},
        {"Authorization": f"Basic {'a' * 72}"},
        {"Cookie": "theme=dark"},
        {"Cookie": "csrftoken=sessionid"},
    ],
)
def test_what_cannot_be_a_credential(port: int, headers: dict[str, str]) -> None:
    body = b"x" * (bodies.ANONYMOUS_BYTES + 1)
    assert requests.post(f"http://127.0.0.1:{port}/", body, headers=headers, timeout=PATIENCE_SEC).status_code == 413


def test_bodies_use_little_memory_until_their_requests_are_answered(echo: Echo, port: int, settings: Settings) -> None:
    """Also requests that wait for their turn. Each client gets a part of the free memory, so the next one gets some."""
    echo.go.clear()
    echo.pauses = True
    size = settings.MAX_BODY_BYTES
    head = HALF.format(path="/v1/monitors").replace("100", str(size)) + f"Authorization: {BEARER}\nConnection: close\n"
    with ExitStack() as stack:
        stack.callback(echo.go.set)
        refused = 0
        for address in range(2, 22):
            for _ in range(4):
                client = stack.enter_context(socket.socket())
                client.settimeout(PATIENCE_SEC)
                client.bind((f"127.0.0.{address}", 0))
                client.connect(("127.0.0.1", port))
                client.sendall("\r\n".join(line.strip() for line in head.strip().splitlines()).encode() + b"\r\n\r\n")
                before = len(echo.environs)
                with suppress(ConnectionError):
                    client.sendall(b"x" * size)
                    until(
                        lambda: len(echo.environs) > before or _is_readable(client),  # noqa: B023
                        PATIENCE_SEC,
                        "it is read or refused",
                    )
                refused += len(echo.environs) == before
        assert refused > 60
        assert len(echo.environs) * size * bodies.WEIGHT <= bodies.MEMORY_BYTES
        echo.go.set()
        with requests.Session() as other:
            other.mount("http://", From("127.0.0.99"))
            small = other.post(
                f"http://127.0.0.1:{port}/", b"x" * 10_000, headers={"Authorization": BEARER}, timeout=PATIENCE_SEC
            )
            assert small.status_code == 200


def _is_readable(client: socket.socket) -> bool:
    return bool(select.select([client], [], [], 0)[0])


def test_a_client_that_sends_many_requests_leaves_turns_to_others(echo: Echo, port: int) -> None:
    echo.go.clear()
    with ExitStack() as stack:
        stack.callback(echo.go.set)
        for _ in range(700):
            stack.enter_context(sent(port, "GET /crowd HTTP/1.1\nHost: 127.0.0.1"))
        until(lambda: len(echo.environs) == gateway.REQUESTS_AT_ONCE // 2, PATIENCE_SEC, "the crowd has its turns")
        quiet = stack.enter_context(socket.socket())
        quiet.bind(("127.0.0.7", 0))
        quiet.settimeout(PATIENCE_SEC)
        quiet.connect(("127.0.0.1", port))
        quiet.sendall(b"GET /quiet HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        until(lambda: echo.environs[-1]["PATH_INFO"] == "/quiet", PATIENCE_SEC, "it waits for none of the crowd")
        echo.go.set()
        assert answer_on(quiet)[0] == 200


def test_answers_that_take_long_are_late_unless_their_requests_may_wait(
    echo: Echo, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> dict[str, float]:
        metrics.report()
        found = metrics.LATE.read(metrics.read_levels())
        return {what: found[what,] for what in ("pages", "pings")}

    monkeypatch.setattr(shares, "REQUEST_SEC", 3_600.0)
    before = late()
    echo.go.clear()
    asked = (
        *(("127.0.0.2", "GET", "/v1/monitors"), ("127.0.0.3", "GET", "/status/page")),
        *(("127.0.0.4", "GET", "/patient"), ("127.0.0.5", "POST", "/v1/heartbeats/mon_unknown/ping")),
    )

    def ask(address: str, method: str, path: str) -> None:
        with requests.Session() as session:
            session.mount("http://", From(address))
            session.request(method, f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SEC)

    threads = [threading.Thread(target=ask, args=given) for given in asked]
    for thread in threads:
        thread.start()
    until(lambda: len(echo.environs) == len(asked), PATIENCE_SEC, "all have a thread")
    monkeypatch.setattr(shares, "REQUEST_SEC", 0.0)
    echo.go.set()
    for thread in threads:
        thread.join()
    after = late()
    assert (after["pages"] - before["pages"], after["pings"] - before["pings"]) == (2, 1)


def test_a_lane_that_is_full_stops_no_other(echo: Echo, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    echo.go.clear()
    with ExitStack() as stack:
        stack.callback(echo.go.set)
        for address in ("127.0.0.2", "127.0.0.3"):
            for _ in range(gateway.REQUESTS_AT_ONCE):
                stack.enter_context(sent(port, "GET /monitors HTTP/1.1\nHost: 127.0.0.1", address=address))
        until(lambda: len(echo.environs) == gateway.REQUESTS_AT_ONCE, PATIENCE_SEC, "all turns are taken")
        assert requests.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SEC).status_code == 200
        for path in ("/readyz", "/status/page"):
            stack.enter_context(sent(port, f"GET {path} HTTP/1.1\nHost: 127.0.0.1"))
        until(
            lambda: {environ["PATH_INFO"] for environ in echo.environs} >= {"/readyz", "/status/page"},
            PATIENCE_SEC,
            "the others have threads of their own",
        )


def test_header_names_with_an_underscore_are_dropped(echo: Echo, port: int) -> None:
    head = """
        GET / HTTP/1.1
        Host: 127.0.0.1
        X-Forwarded-For: 192.0.2.1
        X_Forwarded_For: 203.0.113.9
        X_Forwarded_Proto: https
        X_Request_ID: 0123456789
        Content_Length: 5
        X-Forwarded-For: 192.0.2.2
        Cookie: a=1
        Cookie: b=2
        Connection: close
    """
    with sent(port, head) as client:
        assert answer_on(client)[0] == 200
    (environ,) = echo.environs
    assert {name: value for name, value in environ.items() if name.startswith(("HTTP_", "CONTENT"))} == {
        "HTTP_HOST": "127.0.0.1",
        "HTTP_X_FORWARDED_FOR": "192.0.2.1,192.0.2.2",
        "HTTP_COOKIE": "a=1; b=2",
        "HTTP_CONNECTION": "close",
        "CONTENT_LENGTH": "0",
    }


def test_equal_content_lengths(echo: Echo, port: int) -> None:
    head = "POST / HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 2\nContent-Length: 2\nConnection: close"
    with sent(port, head, b"{}") as client:
        assert answer_on(client)[0] in {200, 400}


def test_many_and_repeated_headers_cost_no_more_than_others(echo: Echo, port: int) -> None:
    """The maximum number and size. Joining repeated headers one by one would take quadratic time."""
    room = 16_384 - 2_000
    value = "x" * (room // gateway.MAX_HEADERS)
    head = "GET / HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n"
    with sent(port, head + f"A: {value}\n" * (gateway.MAX_HEADERS - 2)) as client:
        assert answer_on(client)[0] == 200
    assert echo.environs[0]["HTTP_A"] == ",".join([value] * (gateway.MAX_HEADERS - 2))
    for refused in (f"A: {value}\n" * gateway.MAX_HEADERS, f"A: {'x' * 16_384}\n", "A: x\n" * 4_000):
        with sent(port, head + refused) as client:
            assert answer_on(client)[0] == 431
    assert len(echo.environs) == 1


def test_http_2_is_not_spoken(echo: Echo, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SEC) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        received = b""
        with suppress(ConnectionError):
            while part := client.recv(65_536):
                received += part
    assert not received.startswith(b"\0"), "no HTTP/2 settings"
    assert not echo.environs


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a%20b/%C3%A9?q=%ff&x", "/a b/é", "q=%ff&x"),
        ("/%2e%2e/%2Fx", "/..//x", ""),
        ("/v1//monitors?", "/v1//monitors", ""),
        ("http://elsewhere.example/abs?y", "/abs", "y"),
    ],
)
def test_addresses(echo: Echo, port: int, target: str, path: str, query: str) -> None:
    with sent(port, f"GET {target} HTTP/1.1\nHost: 127.0.0.1\nConnection: close") as client:
        assert answer_on(client)[0] == 200
    (environ,) = echo.environs
    assert (environ["PATH_INFO"].encode("latin-1").decode(), environ["QUERY_STRING"]) == (path, query)
    assert (environ["REMOTE_ADDR"], environ["HTTP_HOST"]) == ("127.0.0.1", "127.0.0.1")


def test_a_path_that_is_no_utf_8(port: int) -> None:
    with sent(port, "GET /%ff%fe HTTP/1.1\nHost: 127.0.0.1\nConnection: close") as client:
        assert answer_on(client)[0] == 200


def test_a_streamed_answer_comes_in_parts_and_is_closed() -> None:
    produced: list[int] = []
    go_on = threading.Event()

    def parts() -> Iterator[bytes]:
        for number in range(3):
            produced.append(number)
            yield b"%d" % number * 100_000
            if number == 0:
                assert go_on.wait(PATIENCE_SEC)

    answer = Parts(parts(), streaming=True)

    def stream(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return answer

    with serving(Gateway(stream)) as port:
        url = f"http://127.0.0.1:{port}/"
        with requests.get(url, stream=True, timeout=PATIENCE_SEC) as found:
            first = found.raw.read(100_000)
            assert (first, produced) == (b"0" * 100_000, [0])
            go_on.set()
            assert found.raw.read() == b"1" * 100_000 + b"2" * 100_000
        assert answer.closed.wait(PATIENCE_SEC)


def test_django_s_own_answers() -> None:
    """Responses of WSGIHandler and its middleware: a page, a static file, HEAD and an error."""
    calls: list[tuple[str, str, int, Callable[[requests.Response], bool]]] = [
        ("GET", "/healthz", 200, lambda found: found.content == b"ok\n"),
        ("HEAD", "/healthz", 200, lambda found: not found.content),
        ("GET", "/static/pulsekeeper/base.css", 200, lambda found: len(found.content) > 10_000),
        ("POST", "/v1/nowhere", 404, lambda found: found.json()["error"] == "not_found"),
        ("POST", "/v1/sessions", 422, lambda found: found.json()["error"] == "validation_error"),
    ]
    with serving(Gateway(WSGIHandler())) as port:
        for method, path, status, holds in calls:
            url = f"http://127.0.0.1:{port}{path}"
            found = requests.request(method, url, timeout=PATIENCE_SEC)
            assert found.status_code == status, path
            assert holds(found), path
            assert found.headers["X-Content-Type-Options"] == "nosniff"
