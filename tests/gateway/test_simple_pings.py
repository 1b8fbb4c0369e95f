"""The event loop answers signals, and Django those that it refuses."""

from __future__ import annotations

import http.client
import itertools
import logging
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, connections, transaction
from pytest_django.fixtures import Settings

from checks.results.models import CheckResult
from config import bodies
from config.gateway import Gateway
from core.throttles import PINGS, seconds_to_wait
from monitors.models import Monitor, MonitorState, Ping
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, run_concurrently, state_of
from tests.monitors.test_pings import NOW, at, heartbeat
from tests.processes.waiting import until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 30
_peers = itertools.count(1)
"""An address for each test: the process counts pings by address."""


@dataclass
class Answer:
    status: int = 0
    headers: Message = field(default_factory=Message)
    body: bytes = b""


class Front:
    """The running gateway, and the number of requests that it passed on to Django."""

    def __init__(self) -> None:
        self.passed_on = 0
        self.port = 0
        django = WSGIHandler()

        def counted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            self.passed_on += 1
            return django(environ, start_response)

        self.application = Gateway(counted)

    def __call__(self, path: str, method: str = "POST", *, peer: str = "127.0.0.1", **headers: str) -> Answer:
        """`peer`: the client's address, one of 127.0.0.0/8."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(peer, 0))
        try:
            client.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                client.putheader(name.replace("_", "-"), value)
            client.endheaders()
            response = client.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            client.close()

    def learn_headers(self) -> None:
        """Let it learn Django's response headers: Django answers the first ping to a host."""
        assert self(path_of(heartbeat(UserFactory())), peer=f"127.1.0.{next(_peers)}").status == 200
        self.passed_on = 0


@pytest.fixture
def front() -> Iterator[Front]:
    front = Front()
    with serving(front.application) as front.port:
        yield front


@pytest.fixture
def up() -> Monitor:
    return heartbeat(UserFactory(), last_ping_at=at(-30))


def path_of(monitor: Monitor) -> str:
    return f"/v1/heartbeats/{monitor.public_id}/ping"


def results_of(monitor: Monitor) -> int:
    return CheckResult.objects.filter(monitor_id=monitor.pk).count()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_one_that_is_up_is_recorded_without_django(front: Front, up: Monitor, method: str) -> None:
    front.learn_headers()
    answer = front(path_of(up), method)
    assert (answer.status, front.passed_on) == (200, 0)
    assert answer.body == (b"" if method == "HEAD" else b'{"ok":true}')
    assert results_of(up) == 1
    ping = state_of(up).last_ping_at
    assert ping is not None
    assert ping > NOW


def test_both_ways_have_the_same_headers(front: Front, up: Monitor) -> None:
    through_django, simple = front(path_of(up)), front(path_of(up))
    assert front.passed_on == 1
    assert results_of(up) == 2
    for answer in (simple, through_django):
        assert answer.headers["Date"]
        del answer.headers["Date"]
    assert (simple.headers.items(), simple.body) == (through_django.headers.items(), through_django.body)
    assert simple.headers["X-Content-Type-Options"] == "nosniff"


def test_pings_that_come_together_are_each_recorded(front: Front) -> None:
    owner = UserFactory()
    monitors = [heartbeat(owner, last_ping_at=at(-30)) for _ in range(8)]
    front.learn_headers()
    answers = run_concurrently(*[partial(front, path_of(monitor)) for monitor in monitors for _ in range(5)])
    assert {getattr(answer, "status", answer) for answer in answers} == {200}
    assert [results_of(monitor) for monitor in monitors] == [5] * len(monitors)


def test_connections_are_given_back(front: Front, up: Monitor) -> None:
    front.learn_headers()
    front(path_of(up))
    connection.close()  # the test's own
    pool = connections["default"].pool  # type: ignore[attr-defined]  # of PostgreSQL alone

    def all_are_back() -> bool:
        found = pool.get_stats()
        return bool(found["pool_available"] == found["pool_size"])

    until(all_are_back, PATIENCE_SEC, "all connections are in the pool")


def test_other_heartbeats_are_recorded_without_django_too(front: Front) -> None:
    user = UserFactory()
    front.learn_headers()
    for monitor, status in [
        (heartbeat(user, status="down", next_due_at=None), "up"),
        (MonitorFactory(owner=user, heartbeat=True, interval_sec=60, grace_sec=10), "up"),
        (heartbeat(user, configured={"enabled": False}, next_due_at=None), "up"),
    ]:
        assert front(path_of(monitor)).body == b'{"ok":true}'
        assert front.passed_on == 0
        assert state_of(monitor).status == status
        assert state_of(monitor).last_ping_at is not None


def test_signals_that_come_together_are_each_recorded(front: Front) -> None:
    """Also signals of one heartbeat, which are recorded in one transaction."""
    owner = UserFactory()
    monitors = [heartbeat(owner, last_ping_at=at(-30)) for _ in range(4)]
    front.learn_headers()
    words = ("/start", "/fail", "/log", "/7", "", "?rid=0f8fad5b-d9cb-469f-a165-70867728950e")
    answers = run_concurrently(*[partial(front, path_of(monitor) + word) for monitor in monitors for word in words])
    assert {getattr(answer, "status", answer) for answer in answers} == {200}
    for monitor in monitors:
        kinds = Ping.objects.filter(monitor_id=monitor.pk).values_list("kind", flat=True)
        assert sorted(kinds) == ["fail", "fail", "log", "start", "success", "success"]
        assert results_of(monitor) == 4


def test_a_locked_heartbeat_is_left_to_django(front: Front, up: Monitor) -> None:
    """Django waits, and no other signal waits for it."""
    front.learn_headers()
    other = heartbeat(UserFactory(), last_ping_at=at(-30))
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            MonitorState.objects.select_for_update().get(monitor=up)
            waiting = threads.submit(front, path_of(up) + "/fail")
            until(lambda: front.passed_on == 1, PATIENCE_SEC, "Django has it")
            assert front(path_of(other) + "/fail").status == 200
            assert front.passed_on == 1
        assert waiting.result(PATIENCE_SEC).status == 200
    assert state_of(up).status == state_of(other).status == "down"


def chunks(size: int) -> Iterator[bytes]:
    while size > 0:
        yield b"x" * min(size, 1_000)
        size -= 1_000


BODIES: dict[str, tuple[bytes | int, str | None]] = {
    "none": (b"", None),
    "text": (b"done", "done"),
    "more than is kept": (b"y" * 200_000, "y" * 10_000),
    "chunked": (3_000, "x" * 3_000),
    "chunked, more than is kept": (200_000, "x" * 10_000),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("word", ["", "/fail"])
def test_the_beginning_of_a_body_is_kept(front: Front, up: Monitor, word: str, name: str) -> None:
    sent, kept = BODIES[name]
    for _ in range(2):  # by Django, and without it
        client = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
        with suppress(BrokenPipeError, ConnectionResetError):  # answered before all was sent
            client.request("POST", path_of(up) + word, chunks(sent) if isinstance(sent, int) else sent)
        assert client.getresponse().read() == b'{"ok":true}'
        client.close()
    assert list(Ping.objects.filter(monitor_id=up.pk).values_list("body", flat=True)) == [kept] * 2


def test_a_body_that_does_not_come_holds_up_no_signal(
    front: Front, up: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SEC", 1)  # enough for what was sent with the head
    with socket.create_connection(("127.0.0.1", front.port), timeout=PATIENCE_SEC) as client:
        head = f"POST {path_of(up)}/fail HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nthe beginn"
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert Ping.objects.get(monitor_id=up.pk).body == "the beginn"


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/heartbeats/mon_nothere/ping", "POST", 404),
        ("/v1/heartbeats/mon/ping", "PUT", 405),
        ("/v1/heartbeats/mon/ping/", "POST", 404),
        ("/docs", "GET", 200),
    ],
)
def test_anything_else_is_django_s(front: Front, path: str, method: str, status: int) -> None:
    assert (front(path, method).status, front.passed_on) == (status, 1)


@pytest.mark.parametrize("host", ["elsewhere.example.net", "a/b", " "])
def test_an_unknown_host_is_refused(front: Front, up: Monitor, host: str) -> None:
    front.learn_headers()
    for _ in range(2):
        assert front(path_of(up), Host=host).status == 400
    assert results_of(up) == 0


def test_a_domain_of_a_status_page_accepts_no_pings(front: Front, up: Monitor, settings: Settings) -> None:
    settings.STATUS_PAGE_DOMAINS = ["status.example.net"]
    for _ in range(2):
        assert front(path_of(up), Host="status.example.net").status == 404
    assert results_of(up) == 0


@pytest.fixture
def three_pings(settings: Settings) -> None:
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, PINGS: (3, 60)}


@pytest.mark.usefixtures("three_pings")
def test_over_the_limit(front: Front, up: Monitor) -> None:
    front.learn_headers()
    answers = [front(path_of(up), peer="127.0.0.7") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert results_of(up) == 3


@pytest.mark.usefixtures("three_pings")
def test_a_ping_that_django_records_counts_once(front: Front) -> None:
    front.learn_headers()
    assert front("/v1/heartbeats/mon_nothere/ping", peer="127.0.0.8").status == 404
    assert [seconds_to_wait(PINGS, "127.0.0.8") is None for _ in range(3)] == [True, True, False]


def test_only_a_trusted_proxy_says_that_the_client_uses_https(front: Front, up: Monitor, settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 3_600
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.3/32")]
    forwarded = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "192.0.2.9"}
    for _ in range(2):
        trusted = front(path_of(up), peer="127.0.0.3", **forwarded)
        assert trusted.headers["Strict-Transport-Security"]
        for other in (front(path_of(up), **forwarded), front(path_of(up), peer="127.0.0.3")):
            assert "Strict-Transport-Security" not in other.headers
    assert front.passed_on == 2


@pytest.mark.usefixtures("three_pings")
def test_an_error_is_logged_once_and_the_ping_is_tried_once(
    front: Front, up: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    front.learn_headers()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE checks_checkresult RENAME TO elsewhere")
    try:
        with caplog.at_level(logging.ERROR):
            answer = front(path_of(up), peer="127.0.0.9")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO checks_checkresult")
    assert (answer.status, front.passed_on) == (500, 1)
    assert b"internal_error" in answer.body
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert [seconds_to_wait(PINGS, "127.0.0.9") is None for _ in range(3)] == [True, True, False]
    assert results_of(up) == 0
    assert front(path_of(up), peer="127.0.0.10").status == 200
