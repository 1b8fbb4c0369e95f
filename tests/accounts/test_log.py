"""Entries of the audit log about signing in, up and out on the web."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_account
from audit.actions import Action
from audit.models import Entry
from tests.accounts.browser import Browser, link_of, mails_to, signed_in
from tests.accounts.fakes import FakeGitHub
from tests.accounts.test_social import begin, come_back, prove
from tests.api.client import Api
from tests.audit.reading import actions, forget_all, last
from tests.factories import UserFactory
from tests.helpers import PASSWORD
from tests.second_factor import App

ANOTHER = "quite another long one"


@pytest.fixture
def github(settings: Settings) -> Iterator[FakeGitHub]:
    with FakeGitHub() as door:
        door.configure(settings)
        yield door


@pytest.fixture
def _own_content_types() -> Iterator[None]:
    """Clear Django's cache of content types: their rows are removed with the test."""
    ContentType.objects.clear_cache()
    yield
    ContentType.objects.clear_cache()


def test_signing_up_in_and_failing_to(browser: Browser) -> None:
    forget_all()
    browser.sign_up("ada@example.com")
    browser.choose_password("ada@example.com")
    assert browser.person() == "ada@example.com"
    Browser().sign_in("ada@example.com", "wrong")
    Browser().sign_in("unknown@example.com", "wrong")
    signed_in(User.objects.get(email="ada@example.com"))
    user = User.objects.get(email="ada@example.com")
    found = [(e.action, e.actor_type, e.actor_id, e.subject_id) for e in Entry.objects.order_by("pk")]
    assert found == [
        ("account.created", "user", user.pk, None),
        ("sign_in.succeeded", "user", user.pk, None),
        ("sign_in.failed", "anonymous", None, user.pk),
        ("sign_in.failed", "anonymous", None, None),
        ("sign_in.succeeded", "user", user.pk, None),
    ]
    assert last().details == {"door": "web", "ways": ["password"]}
    assert (last().address, "Firefox" in last().user_agent) == ("127.0.0.1", True)


def test_the_second_factor_from_its_setting_up_to_its_end(user: User) -> None:
    browser, setup = signed_in(user), reverse("mfa_activate_totp")
    forget_all()
    page = browser.send(f"{reverse('account_reauthenticate')}?next={setup}", password=PASSWORD)
    (secret,) = re.findall(r'id="secret"[^>]*>([A-Z2-7]+)<', page.text)
    app = App(secret=secret)
    browser.send(setup, code=app.wrong_code())
    assert actions() == []
    browser.send(setup, code=app.code())
    other = Browser()
    other.sign_in(user.email)
    other.send(reverse("mfa_authenticate"), code=app.wrong_code())
    other.send(reverse("mfa_authenticate"), code=app.code())
    assert last().details == {"door": "web", "ways": ["password", "mfa"]}
    browser.send(reverse("mfa_generate_recovery_codes"))
    browser.send(reverse("mfa_deactivate_totp"))
    assert actions() == [
        "second_factor.enabled",
        "recovery_codes.created",
        "second_factor.failed",
        "second_factor.used",
        "sign_in.succeeded",
        "recovery_codes.created",
        "second_factor.disabled",
    ]
    assert secret not in str(list(Entry.objects.values()))


def test_passwords_and_addresses(user: User) -> None:
    browser, old = signed_in(user), user.email
    forget_all()
    page = browser.send(reverse("account_email"), email="new@example.com", action_add="")
    browser.send(f"{page.path}?next={reverse('account_email')}", password=PASSWORD)
    assert actions() == [], "a wish changes nothing"
    browser.confirm_link(mails_to("new@example.com")[0])
    assert (last().action, last().details) == ("email.changed", {"before": old, "after": "new@example.com"})
    browser.send(reverse("account_change_password"), oldpassword=PASSWORD, password1=ANOTHER)
    Browser().send(reverse("account_reset_password"), email="new@example.com")
    stranger = Browser()
    page = stranger.open(link_of("new@example.com"))
    stranger.send(page.path, password1=PASSWORD)
    assert actions() == ["email.changed", "password.changed", "password.reset"]
    assert (last().actor_type, last().actor_id) == ("user", user.pk)


def test_sessions_that_are_ended(user: User) -> None:
    here, _, _, api = signed_in(user), signed_in(user), signed_in(user), Api.signed_in(user)
    here.prove()
    forget_all()
    page = here.open(reverse("account_sessions"))
    endings = re.findall(r"/account/sessions/(\d+)/end/", page.text)
    here.send(reverse("account_end_session", args=[endings[-1]]))
    assert (last().action, last().target_name, last().details) == (
        "session.revoked",
        "Firefox on Linux",
        {"door": "web"},
    )
    here.send(reverse("account_end_other_sessions"))
    details = Entry.objects.order_by("pk").values_list("details", flat=True)[1:]
    assert list(details) == [{"door": "web", "sessions": 1}, {"door": "api", "sessions": 1}]
    assert api.get("/v1/account").status == 401


def test_github_linked_and_unlinked(user: User, github: FakeGitHub) -> None:
    browser = signed_in(user)
    prove(browser)
    forget_all()
    come_back(browser, github.consent(begin(browser, github)))
    browser.send(reverse("social_remove", kwargs={"provider": "github"}))
    assert actions() == ["social_account.linked", "social_account.unlinked"]
    assert last().details == {"provider": "github"}


@pytest.mark.usefixtures("_own_content_types")
def test_in_the_admin_it_is_the_staff_s_hand(user: User) -> None:
    staff = create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    browser = signed_in(staff)
    fields = {"email": "made@example.com", "plan": str(UserFactory().plan_id), "usable_password": "true"}
    browser.send(reverse("admin:accounts_user_add"), **fields, password1=PASSWORD, password2=PASSWORD)
    entry, made = last(Action.ACCOUNT_CREATED), User.objects.get(email="made@example.com")
    assert (entry.actor_type, entry.actor_id, entry.subject_id) == ("staff", staff.pk, made.pk)
    assert (entry.actor_email, entry.target_id) == (staff.email, made.public_id)
