"""Expired or refused tokens are renewed once, by one request at a time, and do not overwrite later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from accounts.models import User
from connectors.grants import LEASE, fetch_projects
from connectors.models import Connector
from connectors.providers import guarded
from core.clock import utc_now
from core.errors import NotFound, ProviderError, ReconnectRequired
from projects.access import Caller
from tests.api.client import Api
from tests.connectors.fakes import FakeNetlify, FakeVercel
from tests.connectors.linking import Place, come_back, place
from tests.factories import UserFactory
from tests.helpers import run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)

LIFETIME_SEC = 3600


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def api(user: User) -> Api:
    return Api.signed_in(user)


@pytest.fixture
def netlify(settings: Settings, api: Api) -> Iterator[FakeNetlify]:
    """A linked provider, with renewable tokens."""
    with place(settings, "netlify", lifetime_sec=LIFETIME_SEC) as there:
        assert isinstance(there.fake, FakeNetlify)
        there.link(api)
        there.fake.calls.clear()
        yield there.fake


def fetch(user: User, **at: Any) -> int:
    """Fetch the projects. Return their number."""
    return len(fetch_projects(Caller(user), "netlify", **{"now": utc_now(), **at})[1])


def run_out() -> None:
    connector = Connector.objects.get()
    connector.tokens = {**connector.tokens, "expires_at": 0}
    connector.save(update_fields=["tokens"])


def renewals(fake: FakeNetlify) -> int:
    return fake.calls.count(fake.TOKEN_PATH)


def while_renewing(fake: FakeNetlify, happens: Callable[[], object]) -> None:
    """Call it in the server's thread, before it answers the first renewal."""

    def run() -> None:
        try:
            happens()
        finally:
            connection.close()

    fake.on_renewal.append(run)


def test_a_token_that_is_refused_early_is_renewed(netlify: FakeNetlify, user: User) -> None:
    before = Connector.objects.get()
    netlify.expire()
    assert fetch(user) == 3
    after = Connector.objects.get()
    assert after.tokens["access_token"] != before.tokens["access_token"]
    assert (after.revoked_at, after.renewing_until, renewals(netlify)) == (None, None, 1)
    assert fetch(user) == 3
    assert renewals(netlify) == 1


def test_a_token_that_ran_out_is_renewed_before_it_is_sent(netlify: FakeNetlify, user: User) -> None:
    netlify.expire()
    run_out()
    assert fetch(user) == 3
    assert netlify.calls == [netlify.TOKEN_PATH, "/api/v1/sites"]


def test_a_revoked_grant(netlify: FakeNetlify, user: User) -> None:
    netlify.revoke()
    with pytest.raises(ReconnectRequired):
        fetch(user)
    assert Connector.objects.get().revoked_at is not None
    assert renewals(netlify) == 1
    with pytest.raises(ReconnectRequired):
        fetch(user)
    assert renewals(netlify) == 1


def test_new_tokens_that_are_refused_all_the_same(
    netlify: FakeNetlify, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    netlify.expire()
    monkeypatch.setattr(netlify, "new_token", lambda: netlify.new_secret("access"))
    with pytest.raises(ReconnectRequired):
        fetch(user)
    assert Connector.objects.get().revoked_at is not None
    assert renewals(netlify) == 1


def test_of_many_requests_one_renews(netlify: FakeNetlify, user: User) -> None:
    """All are refused before the first refresh is answered; using the refresh token twice would revoke the grant."""
    netlify.expire()
    netlify.renews_after = 4
    assert run_concurrently(*[lambda: fetch(user)] * 4) == [3] * 4
    assert renewals(netlify) == 1
    assert Connector.objects.get().revoked_at is None


def test_a_provider_that_is_down_while_renewing_costs_nothing(netlify: FakeNetlify, user: User) -> None:
    run_out()
    netlify.mode = "500"
    with pytest.raises(ProviderError, match="answered 500"):
        fetch(user)
    connector = Connector.objects.get()
    assert (connector.revoked_at, connector.renewing_until) == (None, None)
    netlify.mode = ""
    assert fetch(user) == 3


def test_a_renewal_that_never_ends(netlify: FakeNetlify, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed: others wait until their timeout, or until the lease has expired."""
    now = utc_now()
    Connector.objects.update(renewing_until=now + LEASE)
    netlify.expire()
    with monkeypatch.context() as hasty:
        hasty.setattr(guarded, "TOTAL_SEC", 0.5)
        with pytest.raises(ProviderError, match="took too long to renew its tokens"):
            fetch(user, now=now)
    assert Connector.objects.get().revoked_at is None
    assert fetch(user, now=now + LEASE) == 3


def test_linking_again_while_renewing(netlify: FakeNetlify, api: Api, user: User) -> None:
    """The tokens of the new link stay, and the request continues with them."""
    linked: list[dict[str, Any]] = []

    def link_anew() -> None:
        Place("netlify", netlify).link(api)
        linked.append(Connector.objects.get().tokens)

    netlify.expire()
    while_renewing(netlify, link_anew)
    assert fetch(user) == 3
    connector = Connector.objects.get()
    assert (connector.tokens, connector.renewing_until) == (linked[0], None)


def test_disconnecting_while_renewing(netlify: FakeNetlify, user: User) -> None:
    netlify.expire()
    while_renewing(netlify, lambda: Connector.objects.all().delete())
    with pytest.raises(NotFound):
        fetch(user)
    assert not Connector.objects.exists()


def test_a_key_rotation_while_renewing(netlify: FakeNetlify, user: User) -> None:
    """The rotation writes the old tokens again; the renewed ones are stored nevertheless."""

    def reencrypt() -> None:
        connector = Connector.objects.get()
        Connector.objects.update(tokens=connector.tokens)

    netlify.expire()
    while_renewing(netlify, reencrypt)
    assert fetch(user) == 3
    assert Connector.objects.get().tokens["access_token"] == netlify.issued[-2]


def test_tokens_that_were_replaced_while_they_were_refused(
    settings: Settings, api: Api, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user links again while a request with the old grant is pending: it continues with the new grant."""
    with place(settings, "vercel") as there:
        there.link(api)
        there.fake.revoke()
        real, links = FakeVercel.check_token, [lambda: come_back(there.fake.consent(there.begin(api)))]

        def check_token(fake: FakeVercel, header: str | None) -> None:
            if links:
                links.pop()()
                connection.close()
            real(fake, header)

        monkeypatch.setattr(FakeVercel, "check_token", check_token)
        _, found = fetch_projects(Caller(user), "vercel", now=utc_now())
        assert len(found) == 3
        assert Connector.objects.get().revoked_at is None
        there.fake.revoke()
        with pytest.raises(ReconnectRequired):
            fetch_projects(Caller(user), "vercel", now=utc_now())
