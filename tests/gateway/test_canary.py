"""Our own requests to BASE_URL, sent to the gateway and to addresses with other responses."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from django.core.handlers.wsgi import WSGIHandler
from pytest_django.fixtures import Settings

from config.gateway import Gateway
from monitors.heartbeats import canary, own_requests
from monitors.models import Canary, MonitorState, Ping, PingGap
from tests.processes.up import free_port
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_requests, "ANSWER_SEC", 1.0)
    monkeypatch.setattr(own_requests, "AGAIN_AFTER_SEC", 0.0)


@pytest.fixture
def base_url(settings: Settings) -> Iterator[str]:
    with serving(Gateway(WSGIHandler())) as port:
        settings.BASE_URL = f"http://127.0.0.1:{port}"
        yield settings.BASE_URL


def ask() -> Canary:
    """Send requests at once, even if another attempt has just ended."""
    Canary.objects.update(asked_at=None)
    own_requests.ask()
    return Canary.objects.get()


def test_a_ping_takes_the_way_of_those_of_jobs_and_changes_nothing(base_url: str) -> None:
    for _ in range(2):  # through Django, and without it
        row = ask()
        assert (row.ping_error, row.page_error, row.base_url) == (None, None, base_url)
        assert row.seen_at is not None
        assert row.ping_ok_at == row.page_ok_at == row.asked_at
        assert row.asked_at is not None
        assert row.asked_at <= row.seen_at
    assert not Ping.objects.exists()
    assert not MonitorState.objects.exists()
    assert not PingGap.objects.exists()


def test_an_attempt_follows_another_a_second_later(base_url: str) -> None:
    assert canary.begin(base_url) is not None
    assert canary.begin(base_url) is None, "the first one runs"
    row = ask()
    own_requests.ask()
    assert Canary.objects.get().asked_at == row.asked_at


def test_a_web_server_that_is_gone_begins_a_gap_and_its_return_ends_it(settings: Settings) -> None:
    with serving(Gateway(WSGIHandler())) as port:
        settings.BASE_URL = f"http://127.0.0.1:{port}"
        first = ask()
    row = ask()
    assert row.ping_error == row.page_error == "Connection refused"
    gap = PingGap.objects.get()
    assert gap.started_at == first.ping_ok_at
    assert gap.reason == "A ping of our own to BASE_URL fails: Connection refused"
    canary.record(row.asked_at, canary.Answer(1), canary.Answer(1))  # type: ignore[arg-type]
    assert PingGap.objects.get().ended_at is None, "nothing was stored"
    Canary.objects.update(seen_at=row.asked_at)
    canary.record(row.asked_at, canary.Answer(1), canary.Answer(1))  # type: ignore[arg-type]
    assert PingGap.objects.get().ended_at is not None


def test_a_full_accept_queue_and_silence_fail(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.BASE_URL = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert ask().ping_error == "no answer within 1 s"


def test_a_name_server_that_does_not_answer_says_nothing(
    base_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask()

    def unanswered(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unanswered)
    row = ask()
    assert row.ping_error == "Temporary failure in name resolution"
    assert row.ping_failing_since is None
    assert not PingGap.objects.exists()


def test_other_answers_are_no_success(settings: Settings) -> None:
    class Other:
        def __rsgi_del__(self, loop: object) -> None:
            pass

        async def __rsgi__(self, scope: object, exchange: object) -> None:
            exchange.response_bytes(200, [], b"hello")  # type: ignore[attr-defined]

    with serving(Other()) as port:
        settings.BASE_URL = f"http://127.0.0.1:{port}"
        assert ask().ping_error == "it was answered by something else"
    settings.BASE_URL = f"http://127.0.0.1:{free_port()}"
    assert ask().ping_error == "Connection refused"
