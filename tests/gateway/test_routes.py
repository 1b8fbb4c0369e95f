"""Requests are counted by the pattern of their URL, regardless of which layer answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLResolver, get_resolver
from pytest_django.fixtures import Settings

from config.routes import ADMIN, OTHER, PING, REQUESTS, SECONDS, SIGNAL, label_of
from config.shares import ThreadLane
from core import metrics
from core.errors import Overloaded
from monitors.models import Monitor
from statuspages.models import StatusPage
from tests.factories import UserFactory
from tests.gateway.test_simple_pings import Front
from tests.helpers import flush_broker
from tests.monitors.test_pings import at, heartbeat
from tests.processes.waiting import until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
_peers = itertools.count(1)


@pytest.fixture
def front() -> Iterator[Front]:
    flush_broker()
    front = Front()
    with serving(front.application) as front.port:
        yield front
    flush_broker()


@pytest.fixture
def up() -> Monitor:
    return heartbeat(UserFactory(), last_ping_at=at(-30))


def counted(number: int) -> dict[tuple[str, str, str], float]:
    """Wait for `number` requests and return their counts by route, method and status."""

    def read() -> dict[tuple[str, ...], float]:
        metrics.report()
        return dict(REQUESTS.read(metrics.read_sums()))

    until(lambda: sum(read().values()) >= number, 30, "they are counted")
    return {(route, method, status): count for (route, method, status), count in read().items()}


def test_each_way_of_answering(front: Front, up: Monitor) -> None:
    ping = f"/v1/heartbeats/{up.public_id}/ping"
    peer = f"127.4.0.{next(_peers)}"
    for _ in range(2):
        assert front(ping, peer=peer).status == 200
    assert front.passed_on == 1, "the second one is answered without Django"
    answers = [
        front(path, method, peer=peer).status
        for method, path in [
            ("POST", f"{ping}/fail"),
            ("PUT", ping),
            ("GET", "/v1/monitors/mon_1"),
            ("GET", "/v1/monitors/mon_2"),
            ("GET", "/nothing/1"),
            ("GET", "/nothing/2"),
            ("BREW", "/docs"),
            ("GET", "/docs"),
            ("GET", "/admin/monitors/monitor/"),
            ("GET", "/status/nothing"),
            ("GET", "/static/nothing"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("GET", "/healthz"),
        ]
    ]
    found = counted(15)
    assert found == {
        (PING, "POST", "200"): 2,
        (SIGNAL, "POST", "200"): 1,
        (PING, "PUT", "405"): 1,
        ("/v1/monitors/<monitor_id>", "GET", "401"): 2,
        (OTHER, "GET", "404"): 2,
        ("/docs", OTHER, str(answers[6])): 1,
        ("/docs", "GET", "200"): 1,
        (ADMIN, "GET", "302"): 1,
        ("/status/", "GET", "404"): 1,
        ("/static/", "GET", "404"): 1,
        ("/readyz", "GET", str(answers[11])): 1,
        ("/metrics", "GET", str(answers[12])): 1,
    }
    counts, seconds = SECONDS.read(metrics.read_sums())[PING, "POST"]
    assert sum(counts) == 2
    assert 0 < seconds < 30


def test_refused_requests(front: Front, up: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise Overloaded

    monkeypatch.setattr(ThreadLane, "run", refuse)
    assert front("/v1/monitors", "GET").status == 503
    assert front(f"/v1/heartbeats/{up.public_id}/ping").status == 503
    assert front("/v1/monitors", "POST", Content_Length="99999999").status == 413
    assert counted(3) == {(OTHER, "GET", "503"): 1, (PING, "POST", "503"): 1, (OTHER, "POST", "413"): 1}


def test_a_page_on_its_own_domain(front: Front, settings: Settings) -> None:
    settings.STATUS_PAGE_DOMAINS = (".example.org",)
    for path in ("/", "/anything"):
        assert front(path, "GET", Host="status.example.org").status == 404
    assert counted(2) == {("/status/", "GET", "404"): 2}
    assert not StatusPage.objects.exists()


def test_labels_have_no_separators() -> None:
    """Sums in the broker have fields `name|label,label|part`."""

    def patterns(resolver: Any, start: str = "") -> Iterator[str]:
        for each in resolver.url_patterns:
            pattern = f"{start}{each.pattern}"
            yield from patterns(each, pattern) if isinstance(each, URLResolver) else [pattern]

    labels = {label_of(pattern) for pattern in patterns(get_resolver())}
    assert not [label for label in labels if set(label) & set("|,^()\\")]
    assert {PING, SIGNAL, ADMIN, "/v1/monitors/<monitor_id>", "/account/signup/<key>/"} <= labels
    assert len(labels) < 250
