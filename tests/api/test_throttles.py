"""Throttles: counted in the broker by caller and by address; without the broker requests are allowed."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
import redis
from django.apps import apps
from django.test import Client, RequestFactory
from pytest_django.fixtures import Settings

from accounts.models import User
from config.settings import BASE_DIR
from core import throttles
from core.addresses import client_network
from core.logs import OutageFilter
from core.throttles import Counted, LocalCounters
from tests.api.client import Answer, Api
from tests.connectors.linking import come_back, place
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently, state_of


@pytest.fixture(autouse=True)
def _throttled(settings: Settings) -> Iterator[None]:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = dict.fromkeys(settings.THROTTLES, (1000, 60))
    throttles.reset()
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.flushdb()
        yield
        broker.flushdb()
    throttles.reset()


def limit(settings: Settings, scope: str, most: int, seconds: int = 60) -> None:
    settings.THROTTLES = settings.THROTTLES | {scope: (most, seconds)}


def sign_in(email: str, *, address: str = "192.0.2.1", password: str = "wrong") -> Answer:
    return Answer(
        Client(REMOTE_ADDR=address).post(
            "/v1/sessions", {"email": email, "password": password}, content_type="application/json"
        )
    )


def test_every_scope_has_a_rate_and_the_other_way_round() -> None:
    """Scopes without a throttle class are constants of the code; a scope that is never counted has no rate."""
    from config import settings as written

    scopes = {
        cls.scope
        for cls in vars(throttles).values()
        if isinstance(cls, type) and issubclass(cls, throttles.Throttle) and hasattr(cls, "scope")
    }
    assert scopes <= set(written.THROTTLES)
    ours = [Path(app.path) for app in apps.get_app_configs() if Path(app.path).parent == BASE_DIR]
    code = "".join(path.read_text() for app in ours if app.name != "config" for path in app.rglob("*.py"))
    named = [{f'"{scope}"', f"{scope.replace('-', '_')}="} for scope in written.THROTTLES]
    assert [words for words in named if not any(word in code for word in words)] == []


def test_a_window_lets_so_many_pass_and_says_how_long_it_lasts(settings: Settings, user: User) -> None:
    limit(settings, "requests", 3, 100)
    api = Api.signed_in(user)
    assert [api.get("/v1/projects").status for _ in range(4)] == [200, 200, 200, 429]
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        (key,) = broker.keys("throttle:requests:*")
        broker.pexpire(key, 41_500)
    refused = api.get("/v1/projects")
    assert (refused.json["error"], int(refused.headers["Retry-After"])) == ("rate_limited", 42)


def test_the_page_to_which_a_provider_leads_back(settings: Settings, transactional_db: None) -> None:
    """Throttled by client address; a refused request consumes no state and does not call the provider."""
    limit(settings, throttles.CALLBACK, 1, 100)
    with place(settings, "vercel") as there:
        back = there.fake.consent(there.begin(Api.signed_in(UserFactory())))
        browsers = [Client(REMOTE_ADDR=address) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2")]
        assert browsers[0].get("/connectors/vercel/callback").status_code == 400
        refused = come_back(back, browsers[1])
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 100
        assert browsers[1].post("/connectors/vercel/undo").status_code == 429
        assert there.fake.calls == []
        assert come_back(back, browsers[2]).status_code == 200


def test_what_asks_a_provider(settings: Settings, transactional_db: None) -> None:
    limit(settings, "ask-provider", 1, 100)
    with place(settings, "vercel") as there:
        user = UserFactory()
        api = Api.signed_in(user)
        there.link(api)
        assert [api.get(f"{there.path}/projects").status for _ in range(2)] == [200, 429]
        assert Api.signed_in(user).get(f"{there.path}/projects").status == 429
        other = Api.signed_in(UserFactory())
        there.link(other)
        assert other.get(f"{there.path}/projects").status == 200


def test_a_window_ends(settings: Settings) -> None:
    limit(settings, "pings", 1, 1)
    assert throttles.seconds_to_wait("pings", "a") is None
    wait = throttles.seconds_to_wait("pings", "a")
    assert wait is not None
    assert 0 < wait <= 1
    time.sleep(wait + 0.01)  # tests whether Retry-After is correct
    assert throttles.seconds_to_wait("pings", "a") is None


def test_a_count_that_lost_its_end_gets_one_again(settings: Settings) -> None:
    throttles.seconds_to_wait("requests", "a")
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        (key,) = broker.keys("throttle:requests:*")
        broker.persist(key)
        throttles.seconds_to_wait("requests", "a")
        assert 0 < broker.ttl(key) <= 60


def test_the_scale_multiplies_and_zero_turns_off(settings: Settings) -> None:
    limit(settings, "pings", 10)
    settings.THROTTLE_SCALE = 0.5
    assert [throttles.seconds_to_wait("pings", "a") is None for _ in range(6)] == [True] * 5 + [False]
    settings.THROTTLE_SCALE = 0.001
    assert throttles.seconds_to_wait("pings", "b") is None, "a small scale does not shut the door"
    settings.THROTTLE_SCALE = 0
    assert all(throttles.seconds_to_wait("pings", "a") is None for _ in range(20))


def test_those_that_come_at_once_are_counted_in_their_order(settings: Settings) -> None:
    limit(settings, "pings", 3)
    passes = [wait is None for wait in throttles.waits("pings", ["a", "b", "a", "a", "a", "b"])]
    assert passes == [True, True, True, True, False, True]
    assert [wait is None for wait in throttles.waits("pings", ["b", "b", "a"])] == [True, False, False]
    assert throttles.waits("pings", []) == []


def test_counting_is_atomic(settings: Settings) -> None:
    limit(settings, "pings", 20)

    def passes() -> int:
        return sum(throttles.seconds_to_wait("pings", "a") is None for _ in range(10))

    assert sum(int(str(n)) for n in run_concurrently(*[passes] * 5)) == 20


def test_pings_are_reported_to_the_broker_a_share_at_a_time(settings: Settings) -> None:
    limit(settings, "pings", 1000)
    told: list[int] = []

    def tell(name: str, count: int, seconds: int) -> Counted:
        told.append(count)
        return throttles._add(name, count, seconds)

    one, other = (LocalCounters(tell) for _ in range(2))  # of two processes
    for process in (one, other):
        for _ in range(25):
            process.hit("pings:a", seconds=60, share=10)
    assert told == [10] * 4
    assert one.hit("pings:a", seconds=60, share=10)[0] == 20 + 6, "later counts of the other process are not known yet"
    assert other.hit("pings:a", seconds=60, share=10)[0] == 40 + 6
    assert one.hit("pings:b", seconds=60, share=10)[0] == 1


@pytest.mark.parametrize("processes", [1, 4])
def test_the_limit_of_pings_holds_to_a_share_for_each_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    limit(settings, "pings", 500)
    counters = [LocalCounters(throttles._add) for _ in range(processes)]
    passed = 0
    for turn in range(1000):
        monkeypatch.setattr(throttles, "_ping_counters", counters[turn % processes])
        passed += throttles.seconds_to_wait("pings", "a") is None
    assert 500 - 5 * processes <= passed <= 500 + 5 * processes


def test_too_many_pings_get_a_retry_after(settings: Settings, user: User) -> None:
    limit(settings, "pings", 3, 100)
    monitor = MonitorFactory(owner=user, heartbeat=True)
    ping = f"/v1/heartbeats/{monitor.public_id}/ping"
    assert [Api().post(ping).status for _ in range(4)] == [200, 200, 200, 429]
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        (key,) = broker.keys("throttle:pings:*")
        broker.pexpire(key, 41_200)
    refused = Api().get(ping)
    assert (refused.json["error"], int(refused.headers["Retry-After"])) == ("rate_limited", 42)
    last_ping_at = state_of(monitor).last_ping_at
    assert Api().post(ping).status == 429
    assert state_of(monitor).last_ping_at == last_ping_at


def test_all_signals_of_an_address_are_counted_together_refused_ones_too(settings: Settings, user: User) -> None:
    ends = ["", "/start", "/log", "/fail", "/0", "/7", "/start?rid=none"]
    limit(settings, "pings", len(ends), 100)
    ping = f"/v1/heartbeats/{MonitorFactory(owner=user, heartbeat=True).public_id}/ping"
    assert [Api().post(ping + end).status for end in ends] == [200] * 6 + [422]
    assert [Api().post(ping + end).status for end in ends] == [429] * 7


def test_a_tally_restarts_with_its_window_and_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.throttles.MAX_COUNTERS", 2)

    def tell(name: str, count: int, seconds: int) -> Counted:
        return count, 0.0  # a window that has just ended

    tally = LocalCounters(tell)
    assert [tally.hit("a", seconds=60, share=3)[0] for _ in range(4)] == [1, 2, 3, 1]
    assert [tally.hit(name, seconds=60, share=9)[0] for name in "bca"] == [1, 1, 1]
    assert tally.hit("b", seconds=60, share=9)[0] in (1, 2)


def test_callers_are_counted_by_person(settings: Settings, user: User) -> None:
    limit(settings, "requests", 2)
    project = ProjectFactory(owner=user)
    session, token, other = Api.signed_in(user), Api.with_token(user, project), Api.signed_in(UserFactory())
    assert session.get("/v1/monitors").status == 200
    assert token.get("/v1/monitors").status == 200
    assert session.get("/v1/monitors").status == 429
    assert token.get("/v1/monitors").status == 429
    assert other.get("/v1/monitors").status == 200


def test_create_and_test_share_a_stricter_rate(settings: Settings, user: User) -> None:
    limit(settings, "create-and-test", 2)
    api = Api.signed_in(user)
    assert api.post("/v1/monitors", {}).status == 422
    assert api.post("/v1/monitors/test", {}).status == 422
    assert api.post("/v1/monitors/test", {}).status == 429
    assert api.post("/v1/monitors", {}).status == 429
    assert api.get("/v1/monitors").status == 200


def test_sign_in_is_throttled_by_address(settings: Settings, db: None) -> None:
    limit(settings, "sign-in", 2)
    answers = [sign_in(f"user{n}@example.com").status for n in range(3)]
    assert answers == [401, 401, 429]
    assert sign_in("user9@example.com", address="192.0.2.2").status == 401


def test_one_account_is_not_tried_from_many_addresses(settings: Settings, user: User) -> None:
    limit(settings, "sign-in-email", 2)
    spellings = [user.email, f" {user.email.upper()} ", user.email]
    answers = [sign_in(email, address=f"192.0.2.{n}").status for n, email in enumerate(spellings)]
    assert answers == [401, 401, 429]
    assert sign_in(user.email, address="192.0.2.9", password=PASSWORD).status == 429
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        assert not [key for key in broker.keys("*") if user.email.encode() in key]


@pytest.mark.parametrize("body", ["[]", "{", '{"email": 5}', '{"email": null}', "null"])
def test_a_sign_in_without_an_email_is_refused_for_that(db: None, body: str) -> None:
    assert Api().send("post", "/v1/sessions", body).status == 422


def test_bad_tokens_are_throttled_by_address_and_good_ones_are_not(settings: Settings, user: User) -> None:
    limit(settings, "unauthorized", 2)
    assert [Api("ses_nonsense").get("/v1/monitors").status for _ in range(3)] == [401, 401, 429]
    refused = Api().get("/v1/monitors")
    assert (refused.status, refused.json["error"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) >= 1
    assert Api.signed_in(user).get("/v1/monitors").status == 200


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "refusing"])
def test_without_the_broker_everything_passes_soon(
    settings: Settings,
    user: User,
    listening: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OutageFilter, "EVERY_SEC", 0)
    limit(settings, "requests", 1)
    api = Api.signed_in(user)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.REDIS_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        if not listening:
            silent.close()
        start = time.monotonic()
        with caplog.at_level(logging.WARNING, logger="core"):
            assert [api.get("/v1/projects").status for _ in range(20)] == [200] * 20
        assert time.monotonic() - start < 3, "twenty requests pay once for a broker that does not answer"
    assert caplog.text.count("throttles are off") == 1


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "counted"),
    [
        ("192.0.2.1", None, "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "10.0.0.0/8", "192.0.2.1"),
        ("10.0.0.1", "198.51.100.7", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.5, 198.51.100.7, 10.0.0.2", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7:567", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7:567, 10.0.0.2:99", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "[2001:db8:1:2:3::4]:567", "10.0.0.0/8", "2001:db8:1:2::/64"),
        ("10.0.0.1", "[2001:db8:1:2:3::4]", "10.0.0.0/8", "2001:db8:1:2::/64"),
        ("10.0.0.1", "2001:db8:1:2:3::4", "10.0.0.0/8", "2001:db8:1:2::/64"),
        ("10.0.0.1", "[fe80::1%eth0]:567", "10.0.0.0/8", "fe80::/64"),
        ("10.0.0.1", "[::ffff:198.51.100.7]:567", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "[198.51.100.7]:567", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "[::1]:567", "10.0.0.0/8", "::/64"),
        # The client is unknown: it does not count as the proxy, and unknown clients share their limits.
        ("10.0.0.1", "203.0.113.5, nonsense", "10.0.0.0/8", "None"),
        ("10.0.0.1", "198.51.100.7:", "10.0.0.0/8", "None"),
        ("10.0.0.1", "198.51.100.7:123456", "10.0.0.0/8", "None"),
        ("10.0.0.1", "198.51.100.7:\uff15", "10.0.0.0/8", "None"),
        ("10.0.0.1", "unknown", "10.0.0.0/8", "None"),
        ("10.0.0.1", "198.51.100.7,", "10.0.0.0/8", "None"),
        ("10.0.0.1", "9" * 200, "10.0.0.0/8", "None"),
        ("10.0.0.1", "203.0.113.5," + "10.0.0.2," * 5 + "10.0.0.3", "10.0.0.0/8", "203.0.113.5"),
        ("10.0.0.1", "203.0.113.5," + "10.0.0.2," * 5_000 + "198.51.100.7", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "  ", "10.0.0.0/8", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.0/8", "10.0.0.1"),
        ("::ffff:10.0.0.1", "198.51.100.7", "10.0.0.0/8", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", None, "", "2001:db8:1:2::/64"),
        ("", None, "", "None"),
    ],
)
def test_whose_address_counts(settings: Settings, peer: str, forwarded: str | None, trusted: str, counted: str) -> None:
    settings.TRUSTED_PROXIES = tuple(ip_network(cidr) for cidr in trusted.split(",") if cidr)
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    assert client_network(RequestFactory(REMOTE_ADDR=peer).get("/", headers=headers)) == counted
