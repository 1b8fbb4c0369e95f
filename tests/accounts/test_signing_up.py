"""Signing up: open or closed registration, the e-mails, and confirming the address."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import time_machine
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import is_verified
from alerts.models import AlertChannel
from core.clock import utc_now
from projects.access import Caller
from projects.members import add_member, invitation_link
from projects.models import Membership
from tests.accounts.browser import Browser, mails_to, signed_in
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently

NEW = "new@example.com"


def invite(owner: User, email: str = NEW) -> str:
    """The address of the invitation's page."""
    project = ProjectFactory(owner=owner, name="Shop")
    add_member(Caller(owner), project.public_id, email=email, role="member", now=utc_now())
    (path,) = re.findall(r"/invitations/\w+", str(mail.outbox[-1].body))
    return str(path)


def test_signing_up_choosing_a_password_and_being_signed_in(browser: Browser) -> None:
    page = browser.sign_up("New@Example.com")
    assert page.heading == "Check your e-mail"
    assert not User.objects.filter(email=NEW).exists()
    other = Browser()
    page = other.follow(NEW)
    assert (page.path, page.heading) == ("/account/signup/", "Choose a password")
    assert f'value="{NEW}"' in page.text
    assert not User.objects.filter(email=NEW).exists(), "a link is opened by scanners of mail too"
    assert "too short" in other.sign_up(NEW, "short").text
    other.sign_up(NEW, PASSWORD)
    user = User.objects.get(email=NEW)
    assert (other.person(), browser.person(), is_verified(user)) == (NEW, None, True)
    assert AlertChannel.objects.get(owner=user).config == {"address": NEW}
    assert "already have an account" in Browser().follow(NEW).text


def test_a_sign_up_that_somebody_else_began_ends_with_ones_own_password(user: User) -> None:
    """In all ways to return: by the e-mail, by an invitation, or by a link of an earlier version."""
    stranger = Browser()
    invitation = invite(user, "invited@example.com")
    for email in (NEW, "invited@example.com"):
        stranger.sign_up(email, "the stranger's password")
    Browser().choose_password(NEW)
    invited = Browser()
    invited.open(invitation)
    invited.sign_up("invited@example.com", PASSWORD)
    old = UserFactory(email="old@example.com", password="the stranger's password", unconfirmed=True)
    invitation = invite(user, "old@example.com")
    by_invitation = Browser()
    by_invitation.open(invitation)
    by_invitation.sign_up(old.email, PASSWORD)
    older = UserFactory(email="older@example.com", password="the stranger's password", unconfirmed=True)
    assert stranger.sign_in(older.email, "the stranger's password").heading == "Check your e-mail"
    Browser().choose_password(older.email)
    oldest = UserFactory(email="oldest@example.com", password="the stranger's password", unconfirmed=True)
    link = reverse("account_confirm_email", args=[EmailConfirmationHMAC(EmailAddress.objects.get(user=oldest)).key])
    by_link = Browser()
    assert by_link.send(link).heading == "Choose a password"
    by_link.sign_up(oldest.email, PASSWORD)
    for email in (NEW, "invited@example.com", old.email, older.email, oldest.email):
        assert stranger.sign_in(email, "the stranger's password").heading == "Sign in", email
        assert signed_in(User.objects.get(email=email)).person() == email
    assert stranger.person() is None


def test_a_link_runs_out(browser: Browser) -> None:
    browser.sign_up(NEW)
    with time_machine.travel(utc_now() + timedelta(days=3, minutes=1)):
        page = browser.follow(NEW)
        assert (page.status, "has expired" in page.text) == (404, True)
    assert browser.open("/account/signup/nonsense:x:y/").status == 404
    assert not User.objects.filter(email=NEW).exists()


def test_a_sign_up_does_the_same_work_whether_or_not_the_address_is_taken(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return encode(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    seen = []
    for email in (user.email, NEW):
        browser = Browser()
        browser.open(reverse("account_signup"))
        with CaptureQueriesContext(connection) as queries:
            page = browser.sign_up(email, PASSWORD)
        kinds = [query["sql"].split(" ", 1)[0] for query in queries.captured_queries]
        seen.append((page.status, page.path, page.heading, kinds, len(mails_to(email))))
    taken, free = seen
    assert taken == free
    assert hashed == []
    (body,) = mails_to(user.email)
    assert "already has an account" in body
    assert "http://testserver/account/password/reset/" in body
    assert signed_in(user).person() == user.email, "the password is what it was"


def test_an_unconfirmed_change_of_address_keeps_nobody_out(browser: Browser, user: User) -> None:
    squatter = signed_in(user)
    page = squatter.send(reverse("account_email"), email=NEW, action_add="")
    squatter.send(f"{page.path}?next={reverse('account_email')}", password=PASSWORD)
    change = mails_to(NEW)[-1]
    browser.sign_up(NEW)
    browser.choose_password(NEW)
    assert browser.person() == NEW
    assert "is already the address of another account" in squatter.confirm_link(change).text
    invited = "invited@example.com"
    squatter.send(reverse("account_email"), email=invited, action_add="")
    browser = Browser()
    browser.open(invite(UserFactory(), invited))
    browser.sign_up(invited, PASSWORD)
    assert browser.person() == invited


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
    browser.sign_up(NEW)
    browser.follow(NEW)
    page = browser.send(reverse("account_signup"), **fields)
    assert (page.status, page.heading) == (200, "Choose a password")
    assert said in page.text
    assert f'value="{fields["email"]}"' in page.text or not fields["email"]
    assert f'value="{fields["password1"]}"' not in page.text
    assert not User.objects.filter(email=NEW).exists()


def test_two_sign_ups_with_one_address_at_once() -> None:
    browsers = [Browser() for _ in range(4)]
    browsers[0].sign_up(NEW)
    for browser in browsers:
        browser.follow(NEW)
    run_concurrently(*[lambda browser=browser: browser.sign_up(NEW, PASSWORD) for browser in browsers])
    assert sorted(str(browser.person()) for browser in browsers) == ["None"] * 3 + [NEW]
    assert User.objects.filter(email=NEW).count() == 1


def test_it_may_be_closed(browser: Browser, settings: Settings) -> None:
    settings.SIGN_UP = False
    assert "need an invitation" in browser.open(reverse("account_signup")).text
    assert "need an invitation" in browser.sign_up(NEW).text
    assert reverse("account_signup") not in browser.open(reverse("account_login")).text
    assert not User.objects.filter(email=NEW).exists()


def test_who_is_invited_may_sign_up_and_is_confirmed_by_that(browser: Browser, user: User, settings: Settings) -> None:
    settings.SIGN_UP = False
    path = invite(user)
    page = browser.open(path)
    assert page.heading == "Shop"
    assert user.email in page.text
    assert f'value="{NEW}"' in browser.open(reverse("account_signup")).text
    assert f'value="{NEW}"' in browser.open(reverse("account_login")).text
    other = browser.sign_up("other@example.com", PASSWORD)
    assert "the address that your invitation was sent to" in other.text
    browser.sign_up(NEW, PASSWORD)
    newcomer = User.objects.get(email=NEW)
    assert (browser.person(), is_verified(newcomer)) == (NEW, True)
    assert Membership.objects.filter(user=newcomer, role="member").exists()
    assert Browser().open(path).status == 404


def test_an_invitation_proves_its_own_address_only(browser: Browser, user: User) -> None:
    browser.open(invite(user))
    browser.sign_up("other@example.com", PASSWORD)
    assert not User.objects.filter(email="other@example.com").exists()
    assert browser.person() is None
    browser.choose_password("other@example.com")
    assert browser.person() == "other@example.com"


def test_a_copied_link_opens_the_sign_up_and_proves_no_address(
    browser: Browser, user: User, settings: Settings
) -> None:
    """Managers could otherwise create a confirmed account with any address."""
    settings.SIGN_UP = False
    invite(user)
    place = Membership.objects.get(user=None)
    link = invitation_link(place).removeprefix(settings.BASE_URL)
    page = browser.open(link)
    assert (page.heading, "to confirm it" in page.text) == ("Shop", True)
    mails = len(mail.outbox)
    browser.sign_up(NEW, PASSWORD)
    assert (browser.person(), len(mail.outbox)) == (None, mails + 1)
    assert not User.objects.filter(email=NEW).exists()
    browser.choose_password(NEW)
    assert browser.person() == NEW
    assert Membership.objects.filter(user__email=NEW, role="member").exists()
    assert Browser().open(link).status == 404


def test_an_invitation_that_was_withdrawn_opens_nothing(browser: Browser, user: User, settings: Settings) -> None:
    settings.SIGN_UP = False
    browser.open(invite(user))
    Membership.objects.filter(user=None).delete()
    assert "need an invitation" in browser.sign_up(NEW).text
    assert not User.objects.filter(email=NEW).exists()


def test_an_invitation_of_a_signed_in_user(user: User) -> None:
    newcomer = UserFactory(email=NEW)
    Membership.objects.all().delete()
    path = invite(user, "later@example.com")
    page = signed_in(newcomer).open(path)
    assert "later@example.com" in page.text
    assert NEW in page.text
    later = UserFactory(email="later@example.com")
    browser = signed_in(later)  # follows the invitation
    assert Membership.objects.filter(user=later).exists()
    assert browser.open(path).status == 404


def test_a_reset_by_its_person_ends_a_stranger_s_password(browser: Browser) -> None:
    UserFactory(email=NEW, password="the stranger's password", unconfirmed=True)
    browser.send(reverse("account_reset_password"), email=NEW)
    page = browser.follow(NEW)
    browser.send(page.path, password1=PASSWORD)
    assert Browser().sign_in(NEW, "the stranger's password").heading == "Sign in"
    browser.sign_in(NEW)
    assert browser.person() == NEW
