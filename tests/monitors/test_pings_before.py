"""Pings as the web server hands them over: answered before Django where they are simple, and else by Django."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from ipaddress import ip_network
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from checks.models import CheckResult
from config.pings import pings_before
from core.throttles import PINGS, seconds_to_wait
from monitors.models import Monitor
from tests.makers import empty_broker, make_monitor, make_user, state_of
from tests.monitors.test_pings import NOW, at, heartbeat

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Front:
    """The application, and how many requests came through it to Django."""

    def __init__(self) -> None:
        self.passed_on = 0
        django = WSGIHandler()

        def counted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            self.passed_on += 1
            return django(environ, start_response)

        self._application = validator(pings_before(counted))

    def __call__(self, path: str, method: str = "POST", **given: str) -> Answer:
        answer = Answer()

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], object]:
            answer.status, answer.headers = int(status[:3]), dict(headers)
            return BytesIO().write  # nobody writes that way

        environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": method, "HTTP_HOST": "testserver"}
        environ |= {
            "SCRIPT_NAME": "",
            "QUERY_STRING": "",
            "REMOTE_ADDR": "192.0.2.1",
            "wsgi.input": BytesIO(),
        }
        environ |= given
        setup_testing_defaults(environ)
        parts: Any = self._application(environ, start_response)
        with closing(parts):
            answer.body = b"".join(parts)
        return answer


@pytest.fixture
def front() -> Front:
    return Front()


@pytest.fixture
def up() -> Monitor:
    return heartbeat(make_user(), last_ping_at=at(-30))


def path_of(monitor: Monitor) -> str:
    return f"/v1/heartbeats/{monitor.public_id}/ping"


def results_of(monitor: Monitor) -> int:
    return CheckResult.objects.filter(monitor_id=monitor.pk).count()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_one_that_is_up_is_taken_in_without_django(front: Front, up: Monitor, method: str) -> None:
    answer = front(path_of(up), method)
    assert (answer.status, answer.body, front.passed_on) == (200, b'{"ok":true}', 0)
    assert results_of(up) == 1
    ping = state_of(up).last_ping_at
    assert ping is not None
    assert ping > NOW


def test_the_answer_has_django_s_own_headers(front: Front, up: Monitor) -> None:
    short = front(path_of(up))
    through = Client().post(path_of(up))
    assert short.headers == dict(through.headers)
    assert short.headers["X-Content-Type-Options"] == "nosniff"
    assert front.passed_on == 0


def test_the_connection_is_given_back(front: Front, up: Monitor) -> None:
    front(path_of(up))
    assert connection.connection is None


def test_other_heartbeats_are_taken_in_by_django(front: Front) -> None:
    user = make_user()
    for monitor, status in [
        (heartbeat(user, status="down", next_due_at=None), "up"),
        (make_monitor(user, type="heartbeat", url="", interval_sec=60, grace_sec=10), "up"),
        (heartbeat(user, configured={"enabled": False}, next_due_at=None), "up"),
    ]:
        before = front.passed_on
        assert front(path_of(monitor)).body == b'{"ok":true}'
        assert front.passed_on == before + 1
        assert state_of(monitor).status == status
        assert state_of(monitor).last_ping_at is not None


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/heartbeats/mon_nothere/ping", "POST", 404),
        ("/v1/heartbeats/mon/ping", "PUT", 405),
        ("/v1/heartbeats/mon/ping/", "POST", 404),
        ("/healthz", "GET", 200),
    ],
)
def test_anything_else_is_django_s(front: Front, path: str, method: str, status: int) -> None:
    assert (front(path, method).status, front.passed_on) == (status, 1)


@pytest.mark.parametrize("host", ["elsewhere.example.net", "a/b", " "])
def test_a_host_that_is_none_of_ours(front: Front, up: Monitor, host: str) -> None:
    for _ in range(2):
        assert front(path_of(up), HTTP_HOST=host).status == 400
    assert results_of(up) == 0


def test_a_status_page_s_domain_takes_no_pings(front: Front, up: Monitor, settings: Settings) -> None:
    settings.STATUS_PAGE_DOMAINS = ["status.example.net"]
    assert front(path_of(up), HTTP_HOST="status.example.net").status == 404
    assert results_of(up) == 0


def test_over_the_limit(front: Front, up: Monitor, settings: Settings) -> None:
    empty_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, PINGS: (3, 60)}
    answers = [front(path_of(up), REMOTE_ADDR="198.51.100.7") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert results_of(up) == 3


def test_a_ping_that_django_takes_in_counts_once(front: Front, settings: Settings) -> None:
    empty_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, PINGS: (3, 60)}
    assert front("/v1/heartbeats/mon_nothere/ping", REMOTE_ADDR="198.51.100.8").status == 404
    assert [seconds_to_wait(PINGS, "198.51.100.8") is None for _ in range(3)] == [True, True, False]


def test_who_is_behind_a_proxy_of_ours_is_counted_and_answered_as_he_came(
    up: Monitor, settings: Settings
) -> None:
    settings.SECURE_HSTS_SECONDS = 3_600
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8")]
    front = Front()
    by_proxy = {"HTTP_X_FORWARDED_PROTO": "https", "HTTP_X_FORWARDED_FOR": "192.0.2.9"}
    assert front(path_of(up), REMOTE_ADDR="10.1.2.3", **by_proxy).headers["Strict-Transport-Security"]
    assert "Strict-Transport-Security" not in front(path_of(up), REMOTE_ADDR="192.0.2.1", **by_proxy).headers
    assert "Strict-Transport-Security" not in front(path_of(up), REMOTE_ADDR="10.1.2.3").headers
    assert front.passed_on == 0


def test_what_goes_wrong_is_told_by_django_and_tried_once(
    front: Front, up: Monitor, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    empty_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, PINGS: (3, 60)}
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE checks_checkresult RENAME TO elsewhere")
    try:
        with caplog.at_level(logging.ERROR):
            answer = front(path_of(up), REMOTE_ADDR="198.51.100.9")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO checks_checkresult")
    assert (answer.status, front.passed_on) == (500, 1)
    assert b"internal_error" in answer.body
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert [seconds_to_wait(PINGS, "198.51.100.9") is None for _ in range(3)] == [True, True, False]
    assert results_of(up) == 0
    assert front(path_of(up), REMOTE_ADDR="198.51.100.10").status == 200
