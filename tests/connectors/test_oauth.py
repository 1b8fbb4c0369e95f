"""Start, consent, callback: with providers that reject everything that is not documented."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import time_machine
from django.db import connection
from pytest_django import Settings

from accounts.models import User
from connectors import services
from connectors.models import Connector, OAuthState
from connectors.providers import BACKENDS
from connectors.providers.guarded import OAuthRefused, ProviderFailed
from connectors.tasks import sweep
from projects.access import Caller
from tests.connectors.fakes import FakeNetlify, FakeVercel, Mode
from tests.factories import UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db(transaction=True)

Fake = FakeVercel | FakeNetlify


@pytest.fixture
def user() -> User:
    return UserFactory()


def begin(fake: Fake, user: User) -> dict[str, str]:
    """Return the query of the provider's redirect."""
    return query_of(fake.consent(services.start(Caller(user), fake.NAME, now=NOON)))


def query_of(callback: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(callback).query))


def finish(fake: Fake, query: dict[str, str], **kwargs: Any) -> Connector:
    linked, _ = services.link(**{"word": fake.NAME, "query": query, "signed_in": None, "now": NOON, **kwargs})
    return linked


def refused(fake: Fake, query: dict[str, str], **kwargs: Any) -> str:
    with pytest.raises(OAuthRefused) as caught:
        finish(fake, query, **kwargs)
    return str(caught.value)


def test_the_whole_way(fake: Fake, user: User) -> None:
    url = services.start(Caller(user), fake.NAME, now=NOON)
    callback = fake.consent(url)
    assert callback.startswith(f"{services.redirect_uri(fake.NAME)}?")

    linked = finish(fake, query_of(callback))
    assert (linked.user, linked.meta) == (user, "Ada Lovelace")
    assert linked.tokens["access_token"] in fake.issued
    assert list(BACKENDS[fake.NAME]().projects(linked.tokens)) == ["prj_1", "prj_2", "prj_3"]
    assert not OAuthState.objects.exists()


def test_what_is_asked_of_vercel(vercel: FakeVercel, user: User) -> None:
    url = urlsplit(services.start(Caller(user), "vercel", now=NOON))
    assert url.path == "/integrations/pulsekeeper/new"
    assert list(dict(parse_qsl(url.query))) == ["state"]


def test_what_is_asked_of_netlify(netlify: FakeNetlify, user: User) -> None:
    asked = dict(parse_qsl(urlsplit(services.start(Caller(user), "netlify", now=NOON)).query))
    assert asked.pop("state") != asked.pop("code_challenge")
    assert asked == {
        "client_id": netlify.client_id,
        "redirect_uri": services.redirect_uri("netlify"),
        "response_type": "code",
        "code_challenge_method": "S256",
    }


def test_a_team_of_vercel(settings: Settings, user: User) -> None:
    with FakeVercel(redirect_uri=services.redirect_uri("vercel"), team=("team_1", "Acme")) as fake:
        fake.configure(settings)
        linked = finish(fake, begin(fake, user))
        assert linked.meta == "Acme"
        assert linked.tokens["team_id"] == "team_1"
        assert len(BACKENDS["vercel"]().projects(linked.tokens)) == 3


def test_neither_state_nor_verifier_is_stored_readably(netlify: FakeNetlify, user: User) -> None:
    query = begin(netlify, user)
    with connection.cursor() as cursor:
        cursor.execute("SELECT s::text FROM connectors_oauthstate s")
        (stored,) = cursor.fetchone()
    assert query["state"] not in stored
    assert "verifier" not in stored


def test_a_state_is_good_once(fake: Fake, user: User) -> None:
    query = begin(fake, user)
    finish(fake, query)
    assert "already used" in refused(fake, query)
    assert "already used" in refused(fake, {**query, "code": "another"})


def test_a_state_of_two_callbacks_at_once_is_good_for_one(fake: Fake, user: User) -> None:
    query = begin(fake, user)
    barrier = threading.Barrier(8)
    results: list[str] = []

    def call() -> None:
        barrier.wait()
        try:
            finish(fake, query)
            results.append("linked")
        except OAuthRefused:
            results.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["linked"] + ["refused"] * 7
    assert fake.calls.count(fake.TOKEN_PATH) == 1


def test_a_state_lives_ten_minutes(fake: Fake, user: User) -> None:
    late = begin(fake, user)
    assert "has expired" in refused(fake, late, now=NOON + services.LIFETIME)
    in_time = begin(fake, user)
    finish(fake, in_time, now=NOON + services.LIFETIME - timedelta(seconds=1))


@pytest.mark.parametrize("state", [None, "", "forged", "x" * 10_000, "\0"])
def test_a_missing_or_forged_state(fake: Fake, user: User, state: str | None) -> None:
    query = {**begin(fake, user), "state": state}
    assert "was not started here" in refused(fake, {k: v for k, v in query.items() if v is not None})
    assert fake.TOKEN_PATH not in fake.calls


def test_a_state_of_another_provider_stays_for_its_own(vercel: FakeVercel, netlify: FakeNetlify, user: User) -> None:
    query = begin(netlify, user)
    assert "was not started here" in refused(vercel, query)
    assert finish(netlify, query).user == user


def test_each_comes_back_as_who_began(fake: Fake, user: User) -> None:
    other = UserFactory()
    first, second = begin(fake, user), begin(fake, other)
    assert finish(fake, second).user == other
    assert finish(fake, first).user == user


def test_an_account_deactivated_concurrently_links_nothing(fake: Fake, user: User) -> None:
    query = begin(fake, user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    refused(fake, query)
    assert fake.TOKEN_PATH not in fake.calls


def test_a_denied_consent(fake: Fake, user: User) -> None:
    fake.denies = True
    query = begin(fake, user)
    assert refused(fake, query) == f"{BACKENDS[fake.NAME].title} was not allowed to share your projects."
    assert "already used" in refused(fake, query)


def test_no_code(fake: Fake, user: User) -> None:
    query = begin(fake, user)
    del query["code"]
    assert "without its code" in refused(fake, query)


def test_a_code_that_is_not_the_providers(fake: Fake, user: User) -> None:
    assert "no longer accepts this code" in refused(fake, {**begin(fake, user), "code": "code_of_my_own"})


def test_a_code_that_was_redeemed(fake: Fake, user: User) -> None:
    first, second = begin(fake, user), begin(fake, user)
    finish(fake, first)
    assert "no longer accepts this code" in refused(fake, {**second, "code": first["code"]})


def test_a_code_of_another_flow_fails_at_its_verifier(netlify: FakeNetlify, user: User) -> None:
    mine, stolen = begin(netlify, user), begin(netlify, UserFactory())
    assert "no longer accepts this code" in refused(netlify, {**mine, "code": stolen["code"]})


def test_the_browser_of_somebody_else(fake: Fake, user: User) -> None:
    query = begin(fake, user)
    assert "with another account" in refused(fake, query, signed_in=UserFactory())
    assert fake.TOKEN_PATH not in fake.calls
    assert "already used" in refused(fake, query, signed_in=user)
    assert finish(fake, begin(fake, user), signed_in=user).user == user


def test_tokens_are_in_no_repr(fake: Fake, user: User) -> None:
    linked = finish(fake, begin(fake, user))
    (stored,) = Connector.objects.values_list("tokens", flat=True)
    assert not any(secret in repr((linked, stored)) for secret in fake.issued)


def test_a_way_back_that_is_not_registered(fake: Fake, user: User, settings: Settings) -> None:
    query = begin(fake, user)
    settings.CONNECTORS = {"elsewhere": fake.NAME}
    assert "no longer accepts this code" in refused(fake, query, word="elsewhere")


@pytest.mark.parametrize("name", ["CLIENT_ID", "CLIENT_SECRET"])
def test_keys_that_the_provider_does_not_know(fake: Fake, user: User, settings: Settings, name: str) -> None:
    query = begin(fake, user)
    setattr(settings, f"{fake.NAME.upper()}_{name}", "wrong")
    with pytest.raises(ProviderFailed, match="does not take this deployment's client id and secret"):
        finish(fake, query)


MODES: list[tuple[Mode, str]] = [
    ("down", "cannot be reached"),
    ("slow", "took too long to answer"),
    ("429", "limits requests; try again later"),
    ("500", "answered 500"),
    ("wrong_json", "sent an invalid answer"),
    ("wrong_types", "sent an invalid answer"),
]


@pytest.mark.parametrize(("mode", "text"), MODES)
def test_a_provider_gone_wrong(fake: Fake, user: User, mode: Mode, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.providers.guarded.REQUEST_SEC", 0.5)
    query = begin(fake, user)
    fake.mode = mode
    with pytest.raises(ProviderFailed) as caught:
        finish(fake, query)
    assert str(caught.value) == f"{BACKENDS[fake.NAME].title} {text}."
    fake.mode = ""
    assert "already used" in refused(fake, query)
    finish(fake, begin(fake, user))


def test_a_provider_that_is_not_there(settings: Settings, user: User) -> None:
    with FakeNetlify(redirect_uri=services.redirect_uri("netlify")) as fake:
        fake.configure(settings)
        query = begin(fake, user)
    with pytest.raises(ProviderFailed, match="Netlify cannot be reached"):
        finish(fake, query)


def test_addresses_of_our_own_network_are_not_asked(fake: Fake, user: User, settings: Settings) -> None:
    query = begin(fake, user)
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    with pytest.raises(ProviderFailed, match="cannot be reached"):
        finish(fake, query)
    assert fake.TOKEN_PATH not in fake.calls


def _well(fake: Fake, query: dict[str, str]) -> None:
    finish(fake, query)


def _refused_code(fake: Fake, query: dict[str, str]) -> None:
    with pytest.raises(OAuthRefused):
        finish(fake, {**query, "code": f"{query['code']}x"})


def _down(fake: Fake, query: dict[str, str]) -> None:
    fake.mode = "500"
    with pytest.raises(ProviderFailed):
        finish(fake, query)


@pytest.mark.parametrize("happens", [_well, _refused_code, _down])
def test_nothing_secret_is_logged(
    fake: Fake, user: User, happens: Callable[[Fake, dict[str, str]], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    query = begin(fake, user)
    caplog.clear()  # the fake browser logs the URLs that it opens
    happens(fake, query)
    for secret in (*fake.issued, fake.client_secret, query["state"]):
        assert secret not in caplog.text


@pytest.mark.parametrize("mode", ["down", "429", "500", "wrong_json", "wrong_types"])
def test_nothing_secret_is_in_a_failure(fake: Fake, user: User, mode: Mode) -> None:
    query = begin(fake, user)
    fake.mode = mode
    with pytest.raises(ProviderFailed) as caught:
        finish(fake, query)
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (*fake.issued, fake.client_secret, query["state"]):
        assert secret not in shown


def test_expired_states_are_deleted(fake: Fake, user: User) -> None:
    begin(fake, user)
    with time_machine.travel(NOON + services.LIFETIME - timedelta(seconds=1), tick=False):
        sweep()
    assert OAuthState.objects.exists()
    with time_machine.travel(NOON + services.LIFETIME, tick=False):
        sweep()
    assert not OAuthState.objects.exists()
