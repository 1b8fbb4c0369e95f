"""Listing projects: pages, addresses, expired or revoked tokens, and failing providers."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from connectors.providers import BACKENDS, backend, guarded
from connectors.providers.backend import GrantRevoked, NotPermitted, ProviderProject
from connectors.providers.guarded import ProviderFailed
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel
from connectors.services import redirect_uri
from tests.connectors.fakes import FakeNetlify, FakeVercel, Mode, project, projects
from tests.connectors.test_oauth import MODES, begin, finish
from tests.factories import UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db(transaction=True)

Fake = FakeVercel | FakeNetlify


def link(fake: Fake) -> dict[str, Any]:
    return dict(finish(fake, begin(fake, UserFactory())).tokens)


def listed(fake: Fake, tokens: dict[str, Any]) -> list[ProviderProject]:
    return list(BACKENDS[fake.NAME]().projects(tokens).values())


def test_where_a_project_is(fake: Fake) -> None:
    own = {"vercel": "vercel.app", "netlify": "netlify.app"}[fake.NAME]
    fake.projects = [
        project(1),
        project(2, domain="shop.example"),
        project(3, address=None),
        project(4, address=None, domain="new.example"),
    ]
    assert listed(fake, link(fake)) == [
        ProviderProject("prj_1", "project-1", f"https://project-1.{own}"),
        ProviderProject("prj_2", "project-2", "https://shop.example"),
        ProviderProject("prj_3", "project-3", ""),
        ProviderProject("prj_4", "project-4", "https://new.example"),
    ]


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_all_pages_are_read(fake: Fake, count: int) -> None:
    fake.projects = projects(count)
    assert [found.external_ref for found in listed(fake, link(fake))] == [
        f"prj_{number}" for number in range(1, count + 1)
    ]


def test_ten_thousand_and_no_more(fake: Fake) -> None:
    fake.projects = projects(10_050)
    tokens = link(fake)
    fake.calls.clear()
    assert len(listed(fake, tokens)) == 10_000
    assert len(fake.calls) == 100


def test_a_last_page_of_what_was_seen_before(fake: Fake) -> None:
    """Pages shift if a project is updated while they are read."""
    fake.projects = [*projects(100), *projects(5)]
    assert len(listed(fake, link(fake))) == 100


def test_pages_that_lead_in_a_circle(vercel: FakeVercel) -> None:
    tokens = link(vercel)
    vercel.endless = True
    with pytest.raises(ProviderFailed, match="in a circle"):
        listed(vercel, tokens)


def test_pages_without_an_end(netlify: FakeNetlify, caplog: pytest.LogCaptureFixture) -> None:
    tokens = link(netlify)
    netlify.endless = True
    netlify.calls.clear()
    assert len(listed(netlify, tokens)) == 3
    assert len(netlify.calls) == backend.MAX_PAGES
    assert "only the first 100 pages" in caplog.text


def test_what_makes_no_sense_is_left_out(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    fake.odd = [None, 7, "prj_9", [], {}, {"id": 1, "name": "a"}, {"id": "x" * 201, "name": "a"}]
    fake.odd += [{"id": text, "name": "a"} for text in ("", "\0", "\ud800")]
    assert [found.external_ref for found in listed(fake, link(fake))] == ["prj_1", "prj_2", "prj_3"]
    assert f"{fake.NAME}: 10 projects of a list make no sense" in caplog.text


def test_a_list_that_takes_too_long(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.projects = projects(150)
    tokens = link(fake)
    left = iter([25.0, 0.0])
    monkeypatch.setattr(backend.ProviderBackend, "seconds_left", lambda _: next(left))
    with pytest.raises(ProviderFailed, match="took too long to list its projects"):
        listed(fake, tokens)


def test_all_that_is_asked_has_one_deadline(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = link(fake)
    monkeypatch.setattr(guarded, "TOTAL_SEC", 0.5)
    asked = BACKENDS[fake.NAME]()
    asked.projects(tokens)
    fake.mode = "slow"
    before = time.monotonic()
    for _ in range(3):
        with pytest.raises(ProviderFailed, match="took too long to answer"):
            asked.projects(tokens)
    assert time.monotonic() - before < guarded.REQUEST_SEC / 2


@pytest.mark.parametrize(("mode", "text"), MODES)
def test_a_provider_gone_wrong(fake: Fake, mode: Mode, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "REQUEST_SEC", 0.5)
    tokens = link(fake)
    fake.mode = mode
    with pytest.raises(ProviderFailed) as caught:
        listed(fake, tokens)
    assert str(caught.value) == f"{BACKENDS[fake.NAME].title} {text}."


def test_an_answer_too_long_to_read(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = link(fake)
    monkeypatch.setattr(guarded, "MAX_RESPONSE", 100)
    with pytest.raises(ProviderFailed, match="sent too large an answer"):
        listed(fake, tokens)


def test_a_revoked_grant(fake: Fake) -> None:
    tokens = link(fake)
    fake.revoke()
    with pytest.raises(GrantRevoked, match="no longer accepts this link"):
        listed(fake, tokens)


def test_a_token_that_vercel_does_not_know(vercel: FakeVercel) -> None:
    tokens = link(vercel)
    vercel.revoke()
    vercel.unauthorized = 401, {"error": {"code": "not_authorized", "message": "Not authorized"}}
    with pytest.raises(GrantRevoked):
        listed(vercel, tokens)


def test_a_team_that_the_token_is_not_of(vercel: FakeVercel) -> None:
    with pytest.raises(NotPermitted):
        listed(vercel, {**link(vercel), "team_id": "team_2"})


def test_a_permission_that_is_missing(vercel: FakeVercel) -> None:
    tokens = link(vercel)
    vercel.forbidden = {"/v9/projects"}
    with pytest.raises(NotPermitted, match=r"needs the permission Project \(read\), and access to the proj"):
        listed(vercel, tokens)


def test_a_disabled_integration(vercel: FakeVercel) -> None:
    tokens = link(vercel)
    vercel.disabled = True
    with pytest.raises(NotPermitted, match="has disabled this integration"):
        listed(vercel, tokens)


@pytest.mark.parametrize("body", [None, [], {"error": "forbidden"}, {"error": {"code": 7}}])
def test_a_refusal_of_another_shape(vercel: FakeVercel, body: Any) -> None:
    tokens = link(vercel)
    vercel.revoke()
    vercel.unauthorized = 403, body
    with pytest.raises(NotPermitted):
        listed(vercel, tokens)


def test_netlify_may_forbid_too(netlify: FakeNetlify) -> None:
    tokens = link(netlify)
    netlify.revoke()
    netlify.unauthorized = 403, {"code": 403, "message": "Forbidden"}
    with pytest.raises(NotPermitted, match="needs access to the sites of the team"):
        listed(netlify, tokens)


def test_an_account_whose_name_may_not_be_read(vercel: FakeVercel) -> None:
    vercel.forbidden = {"/v2/user"}
    linked = finish(vercel, begin(vercel, UserFactory()))
    assert linked.meta is None
    assert len(listed(vercel, dict(linked.tokens))) == 3


def test_tokens_without_a_lifetime_do_not_run_out(fake: Fake) -> None:
    tokens, asked = link(fake), BACKENDS[fake.NAME]()
    assert not asked.has_run_out(tokens, now=NOON + timedelta(days=3650))
    with pytest.raises(GrantRevoked):
        asked.renewed(tokens, now=NOON)


def test_tokens_that_run_out_are_renewed(settings: Settings) -> None:
    with FakeNetlify(redirect_uri=redirect_uri("netlify"), lifetime_sec=3600) as fake:
        fake.configure(settings)
        tokens = link(fake)
        netlify = BACKENDS["netlify"]()
        assert not netlify.has_run_out(tokens, now=NOON + timedelta(minutes=58))
        later = NOON + timedelta(minutes=59)
        assert netlify.has_run_out(tokens, now=later)

        fake.expire()
        new = netlify.renewed(tokens, now=later)
        assert new["access_token"] != tokens["access_token"]
        assert new["expires_at"] == int(later.timestamp()) + 3600
        assert len(netlify.projects(new)) == 3

        fake.mode = "500"
        with pytest.raises(ProviderFailed, match="answered 500"):
            netlify.renewed(new, now=later)
        fake.mode = ""
        with pytest.raises(GrantRevoked):  # a refresh token works once
            netlify.renewed(tokens, now=later)


def test_the_network_is_not_awaited_inside_a_transaction(fake: Fake) -> None:
    tokens = link(fake)
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        listed(fake, tokens)


@pytest.mark.parametrize("missing", ["CLIENT_ID", "CLIENT_SECRET"])
def test_a_provider_without_keys_is_not_configured(fake: Fake, settings: Settings, missing: str) -> None:
    assert BACKENDS[fake.NAME].is_configured()
    setattr(settings, f"{fake.NAME.upper()}_{missing}", "")
    assert not BACKENDS[fake.NAME].is_configured()


def test_vercel_needs_its_slug(vercel: FakeVercel, settings: Settings) -> None:
    settings.VERCEL_SLUG = ""
    assert not BACKENDS["vercel"].is_configured()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, ""),
        ({"targets": None}, ""),
        ({"targets": {"production": None}}, ""),
        ({"targets": {"production": {"alias": None}}}, ""),
        ({"targets": {"production": {"alias": ["*.shop.example", "www.shop.example"]}}}, "https://www.shop.example"),
        ({"targets": {"production": {"alias": ["a-git-main.vercel.app", "a.vercel.app"]}}}, "https://a.vercel.app"),
    ],
)
def test_addresses_at_vercel(given: dict[str, Any], url: str) -> None:
    assert Vercel().project_of({"id": "1", "name": "a", **given}).url == url


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, ""),
        ({"custom_domain": "shop.example", "ssl_url": "https://a.netlify.app"}, "https://shop.example"),
        ({"custom_domain": None, "ssl_url": "https://a.netlify.app", "url": "http://b"}, "https://a.netlify.app"),
        ({"custom_domain": "", "ssl_url": "", "url": "http://a.netlify.app"}, "https://a.netlify.app"),
    ],
)
def test_addresses_at_netlify(given: dict[str, Any], url: str) -> None:
    assert Netlify().project_of({"id": "1", "name": "a", **given}).url == url


@pytest.mark.parametrize(
    "given",
    [{}, {"id": 1, "name": "a"}, {"id": "", "name": "a"}, {"id": "x" * 201, "name": "a"}, {"id": "\0", "name": "a"}],
)
def test_a_project_that_makes_no_sense(given: dict[str, Any]) -> None:
    for made in (Vercel(), Netlify()):
        with pytest.raises((KeyError, ValueError)):
            made.project_of(given)
