"""Listing projects: pages, addresses, tokens that ran out or were revoked, and providers gone wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from connectors.oauth import redirect_uri
from connectors.providers import BACKENDS, backend, provider
from connectors.providers.base import GrantRevoked, ProviderFailed, ProviderProject
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel
from tests.connectors.fakes import FakeNetlify, FakeVercel, Mode, project, projects
from tests.connectors.test_oauth import MODES, begin, finish
from tests.makers import NOON, make_user

pytestmark = pytest.mark.django_db(transaction=True)

Fake = FakeVercel | FakeNetlify


def link(fake: Fake) -> dict[str, Any]:
    return dict(finish(fake, begin(fake, make_user()))[1].tokens)


def listed(fake: Fake, tokens: dict[str, Any]) -> list[ProviderProject]:
    return list(provider(fake.NAME).projects(tokens))


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


def test_a_listing_that_takes_too_long(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.projects = projects(150)
    tokens = link(fake)
    monkeypatch.setattr(backend, "LISTING_SEC", 0.0)
    with pytest.raises(ProviderFailed, match="took too long to list its projects"):
        listed(fake, tokens)


@pytest.mark.parametrize(("mode", "text"), MODES)
def test_a_provider_gone_wrong(fake: Fake, mode: Mode, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "REQUEST_SEC", 0.5)
    tokens = link(fake)
    fake.mode = mode
    with pytest.raises(ProviderFailed) as caught:
        listed(fake, tokens)
    assert str(caught.value) == f"{BACKENDS[fake.NAME].title} {text}."


def test_an_answer_too_long_to_read(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = link(fake)
    monkeypatch.setattr(backend, "MAX_ANSWER", 100)
    with pytest.raises(ProviderFailed, match="answered with more than can be read"):
        listed(fake, tokens)


def test_a_revoked_grant(fake: Fake) -> None:
    tokens = link(fake)
    fake.revoke()
    with pytest.raises(GrantRevoked, match="does not take this link any more"):
        listed(fake, tokens)


def test_a_team_that_the_token_is_not_of(vercel: FakeVercel) -> None:
    with pytest.raises(GrantRevoked):
        listed(vercel, {**link(vercel), "team_id": "team_2"})


def test_tokens_that_do_not_run_out_stay(fake: Fake) -> None:
    tokens = link(fake)
    assert provider(fake.NAME).refreshed(tokens, now=NOON + timedelta(days=3650)) == tokens


def test_tokens_that_run_out_are_refreshed(settings: Settings) -> None:
    with FakeNetlify(redirect_uri=redirect_uri("netlify"), lifetime_sec=3600) as fake:
        fake.configure(settings)
        tokens = link(fake)
        netlify = provider("netlify")
        assert netlify.refreshed(tokens, now=NOON + timedelta(minutes=58)) == tokens

        fake.expire()
        later = NOON + timedelta(minutes=59)
        new = netlify.refreshed(tokens, now=later)
        assert new["access_token"] != tokens["access_token"]
        assert new["expires_at"] == int(later.timestamp()) + 3600
        assert len(list(netlify.projects(new))) == 3

        with pytest.raises(GrantRevoked):  # a token for refreshing is good once
            netlify.refreshed(tokens, now=later)
        fake.mode = "500"
        with pytest.raises(ProviderFailed, match="answered 500"):
            netlify.refreshed(new, now=later + timedelta(hours=1))
        fake.mode = ""
        fake.revoke()
        with pytest.raises(GrantRevoked):
            netlify.refreshed(new, now=later + timedelta(hours=1))


def test_tokens_that_ran_out_for_good(netlify: FakeNetlify) -> None:
    tokens = {**link(netlify), "expires_at": int(NOON.timestamp())}
    with pytest.raises(GrantRevoked):
        provider("netlify").refreshed(tokens, now=NOON)


def test_the_network_is_not_awaited_inside_a_transaction(fake: Fake) -> None:
    tokens = link(fake)
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        listed(fake, tokens)


@pytest.mark.parametrize("missing", ["CLIENT_ID", "CLIENT_SECRET"])
def test_a_provider_without_keys_is_not_configured(fake: Fake, settings: Settings, missing: str) -> None:
    assert provider(fake.NAME).is_configured()
    setattr(settings, f"{fake.NAME.upper()}_{missing}", "")
    assert not provider(fake.NAME).is_configured()


def test_vercel_needs_its_slug(vercel: FakeVercel, settings: Settings) -> None:
    settings.VERCEL_SLUG = ""
    assert not provider("vercel").is_configured()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, ""),
        ({"targets": None}, ""),
        ({"targets": {"production": None}}, ""),
        ({"targets": {"production": {"alias": None}}}, ""),
        (
            {"targets": {"production": {"alias": ["*.shop.example", "www.shop.example"]}}},
            "https://www.shop.example",
        ),
        (
            {"targets": {"production": {"alias": ["a-git-main.vercel.app", "a.vercel.app"]}}},
            "https://a.vercel.app",
        ),
    ],
)
def test_addresses_at_vercel(given: dict[str, Any], url: str) -> None:
    assert Vercel().project_of({"id": "1", "name": "a", **given}).url == url


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, ""),
        ({"custom_domain": "shop.example", "ssl_url": "https://a.netlify.app"}, "https://shop.example"),
        (
            {"custom_domain": None, "ssl_url": "https://a.netlify.app", "url": "http://b"},
            "https://a.netlify.app",
        ),
        ({"custom_domain": "", "ssl_url": "", "url": "http://a.netlify.app"}, "https://a.netlify.app"),
    ],
)
def test_addresses_at_netlify(given: dict[str, Any], url: str) -> None:
    assert Netlify().project_of({"id": "1", "name": "a", **given}).url == url


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"id": 1, "name": "a"},
        {"id": "", "name": "a"},
        {"id": "x" * 201, "name": "a"},
        {"id": "\0", "name": "a"},
    ],
)
def test_a_project_that_makes_no_sense(given: dict[str, Any]) -> None:
    for made in (Vercel(), Netlify()):
        with pytest.raises((KeyError, ValueError)):
            made.project_of(given)
