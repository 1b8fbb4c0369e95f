"""Signing up: by whom, with what mail, and what becomes of it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import time_machine
from django.core import mail
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_account
from accounts.verification import is_verified
from alerts.models import AlertChannel
from core.clock import utc_now
from projects.access import Caller
from projects.members import add_member
from projects.models import Membership
from tests.entrance.browser import Browser, link_of, mails_to, signed_in
from tests.makers import PASSWORD, at_once, make_project, make_user

NEW = "new@example.com"


def invite(owner: User, email: str = NEW) -> str:
    """The address of the invitation's page."""
    project = make_project(owner, name="Shop")
    add_member(Caller(owner), project.public_id, email=email, role="member", now=utc_now())
    (path,) = re.findall(r"/invitations/\w+", str(mail.outbox[-1].body))
    return str(path)


def test_signing_up_confirming_and_being_signed_in(browser: Browser) -> None:
    page = browser.sign_up("New@Example.com")
    assert page.heading == "Look into your mail"
    user = User.objects.get(email=NEW)
    assert (is_verified(user), browser.person()) == (False, None)
    assert AlertChannel.objects.get(owner=user).config == {"address": NEW}
    assert NEW in browser.follow(NEW).text
    assert not is_verified(user), "a link is opened by scanners of mail too"
    browser.confirm(NEW)
    assert (is_verified(user), browser.person()) == (True, NEW)
    assert "was used before" in browser.follow(NEW).text


def test_confirming_in_another_browser_signs_nobody_in(browser: Browser) -> None:
    browser.sign_up(NEW)
    other = Browser()
    assert other.confirm(NEW).heading == "Sign in"
    assert (other.person(), browser.person()) == (None, None)
    browser.sign_in(NEW)
    assert browser.person() == NEW


def test_an_address_that_is_not_confirmed_signs_nobody_in(browser: Browser) -> None:
    create_account(email=NEW, password=PASSWORD, verified=False)
    assert browser.sign_in(NEW).heading == "Look into your mail"
    assert browser.person() is None
    browser.confirm(NEW)
    assert browser.person() == NEW


def test_a_link_runs_out(browser: Browser) -> None:
    browser.sign_up(NEW)
    with time_machine.travel(utc_now() + timedelta(days=3, minutes=1)):
        assert "has run out" in browser.follow(NEW).text
    assert not is_verified(User.objects.get(email=NEW))


def test_an_address_that_is_taken_is_told_by_mail_alone(browser: Browser, user: User) -> None:
    taken, free = browser.sign_up(user.email), Browser().sign_up(NEW)
    assert (taken.status, taken.path, taken.heading) == (free.status, free.path, free.heading)
    (body,) = mails_to(user.email)
    assert "has an account already" in body
    assert "http://testserver/account/password/reset/" in body
    assert signed_in(user).person() == user.email, "the password is what it was"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"email": "nonsense", "password1": PASSWORD}, "valid email"),
        ({"email": NEW, "password1": "short"}, "too short"),
        ({"email": NEW, "password1": "password1234"}, "too common"),
        ({"email": "", "password1": PASSWORD}, "required"),
    ],
)
def test_bad_input_keeps_what_was_typed(browser: Browser, fields: dict[str, str], said: str) -> None:
    page = browser.send(reverse("account_signup"), **fields)
    assert (page.status, page.heading) == (200, "Sign up")
    assert said in page.text
    assert f'value="{fields["email"]}"' in page.text or not fields["email"]
    assert f'value="{fields["password1"]}"' not in page.text
    assert not User.objects.filter(email=NEW).exists()


def test_two_sign_ups_with_one_address_at_once() -> None:
    browsers = [Browser() for _ in range(4)]
    for browser in browsers:
        browser.open(reverse("account_signup"))
    pages = at_once(*[lambda browser=browser: browser.sign_up(NEW).heading for browser in browsers])
    assert pages == ["Look into your mail"] * 4
    assert User.objects.filter(email=NEW).count() == 1


def test_it_may_be_closed(browser: Browser, settings: Settings) -> None:
    settings.SIGN_UP = False
    assert "were invited" in browser.open(reverse("account_signup")).text
    assert "were invited" in browser.sign_up(NEW).text
    assert reverse("account_signup") not in browser.open(reverse("account_login")).text
    assert not User.objects.filter(email=NEW).exists()


def test_who_is_invited_may_sign_up_and_is_confirmed_by_that(
    browser: Browser, user: User, settings: Settings
) -> None:
    settings.SIGN_UP = False
    path = invite(user)
    page = browser.open(path)
    assert page.heading == "Shop"
    assert user.email in page.text
    assert f'value="{NEW}"' in browser.open(reverse("account_signup")).text
    assert f'value="{NEW}"' in browser.open(reverse("account_login")).text
    other = browser.sign_up("other@example.com")
    assert "the address that your invitation was sent to" in other.text
    browser.sign_up(NEW)
    newcomer = User.objects.get(email=NEW)
    assert (browser.person(), is_verified(newcomer)) == (NEW, True)
    assert Membership.objects.filter(user=newcomer, role="member").exists()
    assert Browser().open(path).status == 404


def test_an_invitation_proves_its_own_address_only(browser: Browser, user: User) -> None:
    browser.open(invite(user))
    browser.sign_up("other@example.com")
    assert not is_verified(User.objects.get(email="other@example.com"))
    assert browser.person() is None


def test_an_invitation_that_was_withdrawn_opens_nothing(
    browser: Browser, user: User, settings: Settings
) -> None:
    settings.SIGN_UP = False
    browser.open(invite(user))
    Membership.objects.filter(user=None).delete()
    assert "were invited" in browser.sign_up(NEW).text
    assert not User.objects.filter(email=NEW).exists()


def test_an_invitation_of_somebody_who_is_signed_in(user: User) -> None:
    newcomer = make_user(email=NEW)
    Membership.objects.all().delete()
    path = invite(user, "later@example.com")
    page = signed_in(newcomer).open(path)
    assert "later@example.com" in page.text
    assert NEW in page.text
    later = make_user(email="later@example.com")
    browser = signed_in(later)  # takes it up
    assert Membership.objects.filter(user=later).exists()
    assert browser.open(path).status == 404


def test_signing_up_by_an_account_with_a_stranger_s_password_ends_it(browser: Browser) -> None:
    """Somebody signed up with the address before its person did: a reset is the person's, and ends the stranger's."""
    stranger = Browser()
    stranger.sign_up(NEW, "the stranger's password")
    browser.send(reverse("account_reset_password"), email=NEW)
    browser.follow(NEW)
    form = link_of(NEW).rpartition("-")[0]
    browser.send(
        f"{form.rpartition('/')[0]}/{form.rpartition('/')[2].split('-')[0]}-set-password/", password1=PASSWORD
    )
    assert stranger.sign_in(NEW, "the stranger's password").heading == "Sign in"
    browser.sign_in(NEW)
    assert browser.person() == NEW
