"""OIDC_ONLY: no passwords, no sign-up; and the operator's way in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from io import StringIO
from urllib.parse import urlsplit

import pytest
import time_machine
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import transaction
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from core.clock import utc_now
from projects.access import Caller
from projects.members import add_member, invitation_link
from tests.accounts.browser import Browser, code_of, mails_to, signed_in
from tests.accounts.fakes import FakeGitHub
from tests.api.client import Api
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import PASSWORD, count_awaiting, run_concurrently
from tests.oidc.provider import EMAIL, Provider, sign_in
from tests.processes.waiting import until
from tests.second_factor import App
from tokens.services import create_token


@pytest.fixture(autouse=True)
def _only(provider: Provider, settings: Settings) -> None:
    settings.OIDC_ONLY = settings.SIGN_UP = True


def command(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def test_the_page_has_one_button(browser: Browser) -> None:
    page = browser.open(reverse("account_login"), next="/projects")
    assert "Sign in with Acme" in page.text
    for other in ('type="password"', "Forgot", "Sign up", "Or with", "GitHub"):
        assert other not in page.text
    assert sign_in(browser, next="/projects").path == "/projects"
    assert browser.person() == EMAIL


def test_passwords_open_nothing(browser: Browser, user: User) -> None:
    page = browser.sign_in(user.email)
    assert (page.status, page.heading, browser.person()) == (403, "Passwords are turned off", None)
    answer = Api().post("/v1/sessions", {"email": user.email, "password": PASSWORD})
    assert answer.status == 401
    assert answer.error.startswith("invalid_credentials Passwords are turned off")


@pytest.mark.parametrize("method", ["open", "send"])
@pytest.mark.parametrize("path", ["signup/", "signup/any:key/", "password/reset/", "password/reset/1-any/"])
def test_pages_of_strangers(browser: Browser, user: User, method: str, path: str) -> None:
    page = getattr(browser, method)(f"/account/{path}")
    assert (page.status, page.heading) == (403, "Passwords are turned off")
    page = browser.send(f"/account/{path}", email=user.email, password1=PASSWORD)
    assert (page.status, mail.outbox) == (403, [])


@pytest.mark.parametrize("path", ["password/", "password/set/", "confirm/"])
def test_pages_of_the_account(browser: Browser, path: str) -> None:
    sign_in(browser)
    assert browser.open(f"/account/{path}").status == 403
    assert browser.send(f"/account/{path}", password1=PASSWORD, oldpassword=PASSWORD, password=PASSWORD).status == 403
    assert "Password</strong>" not in browser.open("/account/").text


def test_a_password_is_not_changed_by_the_api(settings: Settings, user: User) -> None:
    settings.OIDC_ONLY = False
    api = Api().signed_in(user)
    settings.OIDC_ONLY = True
    answer = api.patch("/v1/account", {"current_password": PASSWORD, "password": "another-good-one"})
    assert (answer.status, answer.error) == (422, "validation_error password: passwords are turned off here.")


def test_tokens_and_sessions_go_on(settings: Settings, user: User) -> None:
    settings.OIDC_ONLY = False
    browser = signed_in(user)
    project = ProjectFactory(owner=user)
    _, plaintext = create_token(Caller(user), name="deploy", project_id=project.public_id, now=utc_now())
    settings.OIDC_ONLY = True
    assert browser.person() == user.email
    assert Api(plaintext).get("/v1/monitors").status == 200


def test_other_providers_are_off(browser: Browser, settings: Settings) -> None:
    with FakeGitHub() as github:
        github.configure(settings)
        assert "GitHub" not in browser.open(reverse("account_login")).text
        assert browser.send("/account/with/github/").status == 404
        assert browser.open("/account/with/github/callback").status == 404


def test_the_only_way_in_is_not_unlinked(browser: Browser, settings: Settings) -> None:
    UserFactory(email=EMAIL)
    sign_in(browser)
    sign_in(browser, again="1", next="/account/")
    assert "your only way to sign in" in browser.send("/account/with/oidc/remove/").text


def test_confirming_is_signing_in_again(browser: Browser, provider: Provider) -> None:
    UserFactory(email=EMAIL)  # with a password
    sign_in(browser)
    sent = len(mail.outbox)
    page = browser.open("/account/delete/")
    assert page.heading == "Confirm it's you"
    assert "Sign in again with Acme" in page.text
    assert "Send code" not in page.text
    browser.send("/account/confirm/mail/", send="")
    assert len(mail.outbox) == sent
    assert sign_in(browser, again="1", next="/account/delete/").path == "/account/delete/"


def test_the_admin_is_reached_by_it_alone(browser: Browser, provider: Provider, settings: Settings) -> None:
    staff = UserFactory(email=EMAIL, is_staff=True, is_superuser=True)
    assert browser.sign_in(staff.email, next="/admin/").status == 403
    page = browser.open("/admin/")
    assert (page.path, "Sign in with Acme" in page.text) == ("/account/login/", True)
    assert sign_in(browser, next="/admin/").path == "/admin/"


def test_an_invitation_leads_to_it(browser: Browser) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    invited = add_member(Caller(owner), project.public_id, email=EMAIL, role="admin", now=utc_now())
    page = browser.open(urlsplit(invitation_link(invited)).path)
    assert "Sign up" not in page.text
    sign_in(browser, next="/projects")
    assert project.memberships.filter(user__email=EMAIL, role="admin", from_groups=False).exists()


def test_an_account_without_a_password(browser: Browser) -> None:
    command("create_account", "--email", EMAIL, "--no-password", "--staff")
    assert not User.objects.get(email=EMAIL).has_usable_password()
    sign_in(browser)
    assert browser.open("/admin/").status == 200
    with pytest.raises(CommandError, match="not allowed with"):
        command("create_account", "--email", "x@example.com", "--no-password", "--password", PASSWORD)


def test_the_operator_s_link(browser: Browser, user: User) -> None:
    path = urlsplit(command("sign_in_link", user.email.upper())).path
    page = browser.open(path)
    assert (user.email in page.text, browser.person()) == (True, None), "a mail scanner that opens it uses nothing up"
    assert Browser().client.post(path).status_code == 403, "without the token of the form"
    browser.send(path)
    assert browser.person() == user.email
    assert Browser().send(path).status == 404, "it works once"
    actions = list(Entry.objects.filter(actor_id=user.pk).order_by("pk").values_list("action", "actor_type", "details"))
    assert actions[-2][:2] == (Action.OPERATOR_LINK_CREATED, Entry.ActorType.OPERATOR)
    assert actions[-1] == (Action.SIGN_IN_SUCCEEDED, Entry.ActorType.USER, {"door": "web", "ways": ["link"]})


def test_two_uses_of_a_link_at_once(user: User) -> None:
    path = urlsplit(command("sign_in_link", user.email)).path
    browsers = [Browser(), Browser()]
    for each in browsers:
        each.token()
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            User.objects.select_for_update().get(pk=user.pk)
            uses = threads.submit(run_concurrently, *(partial(each.send, path) for each in browsers))
            until(lambda: count_awaiting() == 2, 20, "both wait")
        uses.result(30)
    assert [each.person() for each in browsers].count(user.email) == 1


def test_who_came_by_it_confirms_by_mail(browser: Browser, user: User) -> None:
    browser.send(urlsplit(command("sign_in_link", user.email)).path)
    browser.send("/account/confirm/mail/?next=/account/", send="")
    browser.send("/account/confirm/mail/?next=/account/", code=code_of(user.email))
    assert browser.open("/account/delete/").path == "/account/delete/"
    assert len(mails_to(user.email)) == 1


def test_a_link_asks_for_the_second_factor(browser: Browser, user: User) -> None:
    app = App(user)
    browser.send(urlsplit(command("sign_in_link", user.email)).path)
    assert browser.person() is None
    browser.send(reverse("mfa_authenticate"), code=app.code())
    assert browser.person() == user.email


def test_the_key_of_a_link_is_not_in_the_log(browser: Browser, user: User, caplog: pytest.LogCaptureFixture) -> None:
    path = urlsplit(command("sign_in_link", user.email)).path
    browser.open(path)
    assert [vars(record)["path"] for record in caplog.records if record.name == "config.access"] == ["/account/link/…/"]


def test_links_that_are_over(browser: Browser, user: User) -> None:
    path = urlsplit(command("sign_in_link", user.email)).path
    with time_machine.travel(utc_now() + timedelta(minutes=11)):
        assert browser.open(path).status == 404
    for wrong in (f"{path[:-2]}x/", "/account/link/a:b:c/"):
        assert browser.send(wrong).status == 404
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert browser.send(path).heading == "Account deactivated"
    assert browser.person() is None
    with pytest.raises(CommandError, match="not the address of an active account"):
        command("sign_in_link", user.email)
