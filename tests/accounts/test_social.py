"""Signing in with GitHub or Google: which account it signs in to, and when it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.core import mail
from django.db import connection
from django.urls import reverse
from pytest_django.fixtures import Settings
from social_django.models import UserSocialAuth

from accounts.models import User
from accounts.services import is_verified
from core.clock import utc_now
from projects.access import Caller
from projects.members import add_member
from tests.accounts.browser import Browser, Page, mails_to, signed_in
from tests.accounts.fakes import FakeDoor, FakeGitHub, FakeGoogle
from tests.api.client import Api
from tests.connectors.fakes import Mode
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently
from tests.second_factor import App

ADA = "ada@example.com"


@pytest.fixture(params=[FakeGitHub, FakeGoogle], ids=["github", "google"])
def door(request: pytest.FixtureRequest, settings: Settings) -> Iterator[FakeDoor]:
    with request.param() as door:
        door.configure(settings)
        yield door


@pytest.fixture
def github(settings: Settings) -> Iterator[FakeGitHub]:
    with FakeGitHub() as door:
        door.configure(settings)
        yield door


def begin(browser: Browser, door: FakeDoor, **fields: str) -> str:
    """Return the provider's URL that the button leads to."""
    path = reverse("social_begin", kwargs={"provider": door.NAME})
    answer = browser.client.post(path, {**fields, "csrfmiddlewaretoken": browser.token()})
    assert answer.status_code == 302, answer.content
    return str(answer.headers["Location"])


def come_back(browser: Browser, callback: str) -> Page:
    parts = urlsplit(callback)
    return browser.open(parts.path, **{name: values[0] for name, values in parse_qs(parts.query).items()})


def go(browser: Browser, door: FakeDoor, **fields: str) -> Page:
    """Sign in, from the button to the callback."""
    return come_back(browser, door.consent(begin(browser, door, **fields)))


def prove(browser: Browser) -> None:
    browser.send(f"{reverse('account_reauthenticate')}?next=/account/", password=PASSWORD)


def test_somebody_new(browser: Browser, door: FakeDoor) -> None:
    assert f"Sign in with {door.NAME}".lower() in browser.open(reverse("account_login")).text.lower()
    page = go(browser, door, next="/account/sessions/")
    user = User.objects.get(email=ADA)
    assert (page.path, browser.person(), is_verified(user)) == ("/account/sessions/", ADA, True)
    assert (user.has_usable_password(), user.plan.name) == (False, "free")
    again = Browser()
    door.email = "ada@new.example"  # the provider's address changed; `uid` still identifies the account
    go(again, door)
    assert again.person() == ADA
    assert User.objects.filter(email="ada@new.example").count() == 0


def test_an_account_of_the_verified_address(browser: Browser, door: FakeDoor) -> None:
    user, door.email = UserFactory(email=ADA), "Ada@Example.com"
    go(browser, door)
    assert browser.person() == ADA
    (told,) = mails_to(ADA)
    assert f"at {door.NAME} was linked to your pulsekeeper account" in told.lower()
    go(Browser(), door)
    assert len(mails_to(ADA)) == 1, "linked once"
    assert signed_in(user).person() == ADA, "the password is what it was"


def test_a_stranger_s_account_of_one_s_address_is_taken_from_the_stranger(browser: Browser, door: FakeDoor) -> None:
    user = UserFactory(email=ADA, unconfirmed=True)
    go(browser, door)
    assert (browser.person(), is_verified(user)) == (ADA, True)
    assert Browser().sign_in(ADA).heading == "Sign in"
    assert Api().post("/v1/sessions", {"email": ADA, "password": PASSWORD}).status == 401


def test_nothing_of_the_provider_is_kept_but_who_it_is(browser: Browser, door: FakeDoor) -> None:
    go(browser, door)
    assert UserSocialAuth.objects.count() == 1
    kept = str(dict(browser.client.session))
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(row)::text FROM social_auth_usersocialauth row")
        kept += str(cursor.fetchall())
    assert door.issued
    assert not any(secret in kept for secret in door.issued)


def test_without_keys_there_is_no_such_door(browser: Browser, github: FakeGitHub, settings: Settings) -> None:
    settings.GITHUB_CLIENT_SECRET = ""
    assert "GitHub" not in browser.open(reverse("account_login")).text
    path = reverse("social_begin", kwargs={"provider": "github"})
    assert browser.send(path).status == 404
    assert browser.open(f"{path}callback").status == 404
    assert browser.send("/account/with/myspace/").status == 404


def test_a_link_alone_begins_nothing(browser: Browser, github: FakeGitHub) -> None:
    path = reverse("social_begin", kwargs={"provider": "github"})
    assert browser.client.get(path).status_code == 405
    assert browser.client.post(path).status_code == 403


def test_pages_with_its_button_may_lead_there(browser: Browser, github: FakeGitHub) -> None:
    for name in ("account_login", "account_signup"):
        policy = browser.open(reverse(name)).headers["Content-Security-Policy"]
        assert f"form-action 'self' {github.url}" in policy
    assert github.url not in browser.open(reverse("account_reset_password")).headers["Content-Security-Policy"]


def test_an_address_that_the_provider_has_not_verified(browser: Browser, door: FakeDoor) -> None:
    user, door.verified = UserFactory(email=ADA), False
    page = go(browser, door)
    assert (page.status, browser.person()) == (400, None)
    assert "no verified e-mail address" in page.text
    assert not UserSocialAuth.objects.filter(user=user).exists()


def test_consent_that_is_denied(browser: Browser, door: FakeDoor) -> None:
    door.denies = True
    page = go(browser, door)
    assert (page.status, browser.person()) == (400, None)
    assert "was not allowed to share your identity" in page.text
    assert not User.objects.filter(email=ADA).exists()


def test_a_state_of_another_browser_or_none_or_a_second_time(browser: Browser, door: FakeDoor) -> None:
    callback = door.consent(begin(browser, door))
    other = Browser()
    begin(other, door)
    query = {name: values[0] for name, values in parse_qs(urlsplit(callback).query).items()}
    path = urlsplit(callback).path
    for wrong in (query, query | {"state": "x"}, {"code": query["code"]}, {}):
        page = other.open(path, **wrong)
        assert (page.status, other.person()) == (400, None)
        assert "Start again" in page.text
    come_back(browser, callback)
    assert browser.person() == ADA
    browser.send(reverse("account_logout"))
    assert come_back(browser, callback).status == 400
    assert browser.person() is None


def test_a_code_of_another_flow_is_refused_by_the_provider(browser: Browser, door: FakeDoor) -> None:
    """PKCE: a code is valid only with the verifier of the browser that started."""
    theirs = parse_qs(urlsplit(door.consent(begin(Browser(), door))).query)
    ours = parse_qs(urlsplit(door.consent(begin(browser, door))).query)
    mixed = urlencode({"code": theirs["code"][0], "state": ours["state"][0]})
    page = come_back(browser, f"{door.redirect_uri}?{mixed}")
    assert (page.status in (400, 502), browser.person()) == (True, None)


@pytest.mark.parametrize("mode", ["down", "429", "500", "wrong_json", "wrong_types"])
def test_a_provider_that_is_unwell(browser: Browser, door: FakeDoor, mode: Mode) -> None:
    callback = door.consent(begin(browser, door))
    door.mode = mode
    page = come_back(browser, callback)
    assert (page.status, browser.person()) == (502, None)
    assert page.heading.lower() == f"sign-in with {door.NAME} failed"
    assert not any(secret in page.text for secret in door.issued)
    door.mode = ""
    go(browser, door)
    assert browser.person() == ADA


def test_a_provider_that_is_slow(browser: Browser, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = github.consent(begin(browser, github))
    monkeypatch.setattr("connectors.providers.guarded.REQUEST_SEC", 0.3)
    github.mode = "slow"
    page = come_back(browser, callback)
    assert (page.status, "took too long" in page.text) == (502, True)


def test_keys_that_the_provider_does_not_know(browser: Browser, door: FakeDoor) -> None:
    callback = door.consent(begin(browser, door))
    door.client_secret = "another"
    assert come_back(browser, callback).status in (400, 502)
    assert browser.person() is None


def test_a_deactivated_account_stays_deactivated(browser: Browser, door: FakeDoor) -> None:
    User.objects.filter(pk=UserFactory(email=ADA).pk).update(is_active=False)
    assert go(browser, door).heading == "Account deactivated"
    assert browser.person() is None


def test_the_second_factor_is_asked_for(browser: Browser, door: FakeDoor) -> None:
    app = App(UserFactory(email=ADA))
    assert go(browser, door).heading == "Two-factor authentication"
    assert browser.person() is None
    browser.send(reverse("mfa_authenticate"), code=app.code())
    assert browser.person() == ADA


def test_where_sign_up_is_closed_only_the_invited_come_in(browser: Browser, door: FakeDoor, settings: Settings) -> None:
    settings.SIGN_UP = False
    page = go(browser, door)
    assert (page.status, "by invitation" in page.text) == (400, True)
    assert not User.objects.filter(email=ADA).exists()
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    add_member(Caller(owner), project.public_id, email=ADA, role="member", now=utc_now())
    go(browser, door)
    assert browser.person() == ADA
    assert project.memberships.filter(user__email=ADA).exists()


def test_two_first_ways_in_at_once(door: FakeDoor) -> None:
    browsers = [Browser() for _ in range(4)]
    callbacks = [door.consent(begin(browser, door)) for browser in browsers]

    def arrive(browser: Browser, callback: str) -> Any:
        come_back(browser, callback)
        return browser.person()

    people = run_concurrently(*[lambda pair=pair: arrive(*pair) for pair in zip(browsers, callbacks, strict=True)])
    assert people == [ADA] * 4
    assert User.objects.filter(email=ADA).count() == 1
    assert UserSocialAuth.objects.count() == 1


def test_signing_up_by_password_and_by_a_provider_at_once(github: FakeGitHub) -> None:
    typing, coming = Browser(), Browser()
    typing.token()
    callback = github.consent(begin(coming, github))
    run_concurrently(lambda: typing.sign_up(ADA), lambda: come_back(coming, callback))
    user = User.objects.get(email=ADA)
    assert (coming.person(), is_verified(user), user.has_usable_password()) == (ADA, True, False)
    assert Browser().sign_in(ADA).heading == "Sign in"


def test_linking_and_unlinking(door: FakeDoor) -> None:
    user, remove = UserFactory(), reverse("social_remove", kwargs={"provider": door.NAME})
    browser = signed_in(user)
    begin_path = reverse("social_begin", kwargs={"provider": door.NAME})
    assert browser.send(begin_path).heading == "Confirm it's you", "a stolen session links nothing"
    prove(browser)
    page = go(browser, door)
    assert "You can now sign in with" in page.text
    assert mails_to(user.email)[-1].count("was linked") == 1
    other = Browser()
    go(other, door)
    assert other.person() == user.email
    assert not User.objects.filter(email=ADA).exists()
    page = browser.send(remove)
    assert "is no longer linked to this account" in page.text
    assert browser.send(remove).status == 404
    go(Browser(), door)
    assert User.objects.filter(email=ADA).exists(), "the identity was disconnected, so it creates a new account"


def test_what_opens_another_account_is_not_linked(github: FakeGitHub) -> None:
    go(Browser(), github)
    user = UserFactory()
    browser = signed_in(user)
    prove(browser)
    page = go(browser, github)
    assert (page.status, "is linked to another Pulsekeeper account" in page.text) == (400, True)
    assert not UserSocialAuth.objects.filter(user=user).exists()


def test_signing_out_during_the_flow_links_nothing(github: FakeGitHub) -> None:
    user = UserFactory()
    browser = signed_in(user)
    prove(browser)
    callback = github.consent(begin(browser, github))
    browser.send(reverse("account_logout"))
    assert come_back(browser, callback).status == 400
    assert not UserSocialAuth.objects.exists()


def test_the_only_way_in_stays_until_there_is_another(browser: Browser, door: FakeDoor) -> None:
    go(browser, door)
    remove = reverse("social_remove", kwargs={"provider": door.NAME})
    browser.prove_by_mail(ADA)
    assert "your only way to sign in" in browser.send(remove).text
    browser.send(reverse("account_set_password"), password1=PASSWORD)
    assert (browser.person(), len(mail.outbox)) == (ADA, 2)
    assert "is no longer linked to this account" in browser.send(remove).text
    assert Api().post("/v1/sessions", {"email": ADA, "password": PASSWORD}).status == 201
