"""Actions that a stolen session must not allow, also for accounts without a password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
import time_machine
from django.core import mail
from django.urls import reverse
from pytest_django.fixtures import Settings
from social_django.models import UserSocialAuth

from accounts.models import User
from accounts.services import create_account
from core.clock import utc_now
from tests.accounts.browser import Browser, code_of, mails_to
from tests.accounts.fakes import FakeGitHub
from tests.accounts.test_social import begin, come_back, go
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import PASSWORD
from tests.second_factor import App

ADA = "ada@example.com"
BY_MAIL = "account_reauthenticate_by_mail"

# The required proof, and its form.
GUARDED = {
    "account_set_password": {"password1": "a stranger's password"},
    "account_email": {"email": "stranger@example.com", "action_add": ""},
    "account_delete": {"email": ADA},
    "account_export": {},
    "account_end_other_sessions": {},
    "mfa_activate_totp": {"code": "000000"},
}


@pytest.fixture
def github(settings: Settings) -> Iterator[FakeGitHub]:
    with FakeGitHub() as door:
        door.configure(settings)
        yield door


@pytest.fixture
def ada(browser: Browser, github: FakeGitHub) -> User:
    """Signed up with GitHub, without a password; signed in in `browser`."""
    go(browser, github)
    return User.objects.get(email=ADA)


@pytest.mark.parametrize("name", GUARDED)
def test_a_session_alone_changes_nothing(browser: Browser, ada: User, name: str) -> None:
    page = browser.send(reverse(name), **GUARDED[name])
    assert (page.heading, page.path) == ("Confirm it's you", reverse(BY_MAIL))
    ada.refresh_from_db()
    assert (ada.has_usable_password(), ada.email, browser.person()) == (False, ADA, ADA)
    assert mail.outbox == []


def test_neither_links_nor_unlinks_a_way_in(browser: Browser, ada: User) -> None:
    for name in ("social_remove", "social_begin"):
        page = browser.send(reverse(name, kwargs={"provider": "github"}))
        assert (page.heading, page.path) == ("Confirm it's you", reverse(BY_MAIL))
    assert UserSocialAuth.objects.filter(user=ada).exists()


def test_a_mailed_code_goes_on_with_the_form_that_was_sent(browser: Browser, ada: User) -> None:
    next_page = f"?next={reverse('account_email')}"
    browser.send(reverse("account_email"), email="new@example.com", action_add="")
    assert "Enter the code" in browser.send(reverse(BY_MAIL) + next_page, send="").text
    code = code_of(ADA)
    page = browser.send(reverse(BY_MAIL) + next_page, code=code.replace(" ", ""))
    assert (page.path, "new@example.com" in page.text) == (reverse("account_email"), True)
    assert mails_to("new@example.com")
    with time_machine.travel(utc_now() + timedelta(minutes=6)):
        assert browser.open(reverse("account_export")).heading == "Confirm it's you"
        browser.send(reverse(BY_MAIL), code=code)
        assert browser.open(reverse("account_export")).heading == "Confirm it's you", "a code is good once"


def test_a_password_that_is_set_lies_in_no_session(browser: Browser, ada: User) -> None:
    browser.send(reverse("account_set_password"), password1=PASSWORD)
    assert PASSWORD not in str(dict(browser.client.session))
    page = browser.prove_by_mail(ADA, to=reverse("account_set_password"))
    assert page.heading == "Password"
    browser.send(page.path, password1=PASSWORD)
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)


def test_a_code_is_of_one_browser_and_tried_a_few_times(browser: Browser, ada: User, github: FakeGitHub) -> None:
    path, stolen = reverse(BY_MAIL), Browser()
    go(stolen, github)
    browser.send(path, send="")
    code = code_of(ADA)
    assert "Incorrect code" not in stolen.open(path).text
    stolen.send(path, code=code)
    assert stolen.open(reverse("account_export")).heading == "Confirm it's you"
    wrong = "0000 0000" if code != "0000 0000" else "1111 1111"
    for _ in range(5):
        assert "Incorrect code" in browser.send(path, code=wrong).text
    assert "Incorrect code" in browser.send(path, code=code).text
    browser.send(path, send="")
    with time_machine.travel(utc_now() + timedelta(minutes=10, seconds=5)):
        assert "Incorrect code" in browser.send(path, code=code_of(ADA)).text
    assert browser.open(reverse("account_export")).heading == "Confirm it's you"


def test_signing_in_with_the_linked_provider_once_more(browser: Browser, ada: User, github: FakeGitHub) -> None:
    page = browser.send(reverse("account_email"), email="new@example.com", action_add="")
    assert re.search("Sign in again with GitHub", page.text)
    assert github.url in page.headers["Content-Security-Policy"]
    again = {"again": "1", "next": reverse("account_email")}
    uid, github.uid = github.uid, 4712
    page = go(browser, github, **again)
    assert (page.status, "is not linked to the account that is signed in" in page.text) == (400, True)
    assert browser.open(reverse("account_export")).heading == "Confirm it's you"
    github.uid = uid
    page = come_back(browser, github.consent(begin(browser, github, **again)))
    assert (page.path, "new@example.com" in page.text) == (reverse("account_email"), True)
    assert browser.open(reverse("account_export")).heading == "Export your data"


def test_a_second_factor_or_a_password_is_asked_for_where_there_is_one(browser: Browser, ada: User) -> None:
    app = App(ada)
    page = browser.open(reverse("account_export"))
    assert (page.heading, page.path) == ("Confirm it's you", reverse("mfa_reauthenticate"))
    browser.send(f"{page.path}?next=/account/export/", code=app.code())
    assert browser.open(reverse("account_export")).heading == "Export your data"
    other = Browser()
    other.sign_in(UserFactory(email="bob@example.com").email)
    assert other.open(reverse(BY_MAIL)).path == reverse("account_reauthenticate")
    assert other.send(reverse(BY_MAIL), send="").path == reverse("account_reauthenticate")
    assert mails_to("bob@example.com") == []


def test_an_export_over_the_api_takes_a_session_of_the_last_minutes() -> None:
    user = create_account(email="bob@example.com", password=PASSWORD)
    with time_machine.travel(utc_now() - timedelta(minutes=5, seconds=5)):
        old = Api.signed_in(user)
    answer = old.get("/v1/account/export")
    assert (answer.status, answer.json["error"]) == (403, "reauthentication_required")
    assert old.get("/v1/account").status == 200
    assert Api.signed_in(user).get("/v1/account/export").status == 200
