"""Signing in and staying signed in: passwords, the second factor, sessions, and what ends them."""

from __future__ import annotations

import logging
import re
import socket
from datetime import timedelta

import pytest
import redis
import time_machine
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.conf import settings as live
from django.contrib.sessions.models import Session
from django.core import mail
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_account
from core.clock import utc_now
from signin.tasks import delete_expired
from tests.accounts.browser import Browser, link_of, mails_to, signed_in
from tests.api.client import Api
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import PASSWORD
from tests.second_factor import App, stored

ANOTHER = "quite another long one"


def change_password(browser: Browser, current: str = PASSWORD, new: str = ANOTHER) -> str:
    return browser.send(reverse("account_change_password"), oldpassword=current, password1=new).text


def throttle(settings: Settings, **scopes: int) -> None:
    settings.THROTTLE_SCALE = 1
    most = {scope.replace("_", "-"): (count, 900) for scope, count in scopes.items()}
    settings.THROTTLES = dict.fromkeys(settings.THROTTLES, (10_000, 60)) | most
    assert live.REDIS_URL is not None
    with redis.Redis.from_url(live.REDIS_URL) as broker:
        broker.flushdb()


def test_signing_in_and_out(browser: Browser, user: User) -> None:
    page = browser.sign_in(user.email.upper(), next="/account/sessions/")
    assert (page.path, browser.person()) == ("/account/sessions/", user.email)
    assert browser.open(reverse("account_logout")).heading == "Sign out"
    assert browser.person() == user.email, "a GET request does not sign out"
    browser.send(reverse("account_logout"))
    assert browser.person() is None


def test_wrong_credentials_keep_the_address(browser: Browser, user: User) -> None:
    for email in (user.email, "unknown@example.com"):
        page = browser.sign_in(email, "wrong")
        assert "are not correct" in page.text
        assert f'value="{email}"' in page.text
        assert browser.person() is None


def test_a_deactivated_account(browser: Browser, user: User) -> None:
    inside = signed_in(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    browser.sign_in(user.email)
    assert (browser.person(), inside.person()) == (None, None)


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_nobody_is_led_elsewhere(browser: Browser, user: User, elsewhere: str) -> None:
    form = {"login": user.email, "password": PASSWORD, "next": elsewhere, "csrfmiddlewaretoken": browser.token()}
    answer = browser.client.post(reverse("account_login"), form)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_passwords_tried_by_both_doors_share_one_budget(user: User, settings: Settings) -> None:
    throttle(settings, sign_in_email=4)
    for _ in range(2):
        assert "are not correct" in Browser().sign_in(f" {user.email.upper()}", "wrong").text
        assert Api().post("/v1/sessions", {"email": user.email, "password": "wrong"}).status == 401
    refused = Browser().sign_in(user.email)
    assert (refused.status, refused.heading) == (429, "Too many attempts")
    assert int(refused.headers["Retry-After"]) > 0
    assert Api().post("/v1/sessions", {"email": user.email, "password": PASSWORD}).status == 429
    throttle(settings, sign_in=2)
    assert [Browser().sign_in("a@example.com").status for _ in range(3)] == [200, 200, 429]


def test_an_address_gets_so_many_mails_and_no_more(user: User, settings: Settings) -> None:
    throttle(settings, account_mail=3)
    pages = {Browser().send(reverse("account_reset_password"), email=user.email).heading for _ in range(5)}
    assert (pages, len(mails_to(user.email))) == ({"Check your e-mail"}, 3)


def test_an_unreachable_mail_server_is_reported(
    user: User, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.getsockname()
    with caplog.at_level(logging.WARNING, "signin"):
        page = Browser().send(reverse("account_reset_password"), email=user.email)
    assert "could not be sent" in page.text
    assert user.email not in caplog.text


def test_another_password_ends_what_is_signed_in_elsewhere(user: User) -> None:
    here, there, api = signed_in(user), signed_in(user), Api.signed_in(user)
    assert "Please type your current password" in change_password(here, current="wrong")
    assert "too common" in change_password(here, new="password1234")
    change_password(here)
    assert (here.person(), there.person(), api.get("/v1/account").status) == (user.email, None, 401)
    assert "was changed" in mails_to(user.email)[-1]
    assert "http://testserver/account/" in mails_to(user.email)[-1]
    assert Browser().sign_in(user.email).heading == "Sign in"
    assert Api().post("/v1/sessions", {"email": user.email, "password": ANOTHER}).status == 201


def test_a_forgotten_password(browser: Browser, user: User) -> None:
    inside, api = signed_in(user), Api.signed_in(user)
    browser.send(reverse("account_reset_password"), email=user.email.upper())
    link = link_of(user.email)
    page = browser.open(link)
    assert (page.heading, page.path.endswith("set-password/")) == ("Choose a password", True)
    assert link not in page.text, "what opens the account is not in the address of the page"
    assert "too short" in browser.send(page.path, password1="short").text
    assert browser.send(page.path, password1=ANOTHER).heading == "Password set"
    assert (inside.person(), api.get("/v1/account").status, browser.person()) == (None, 401, None)
    browser.sign_in(user.email, ANOTHER)
    assert browser.person() == user.email
    assert "no longer valid" in Browser().open(link).heading


def test_an_unknown_address_is_reported_by_email_only(browser: Browser) -> None:
    page = browser.send(reverse("account_reset_password"), email="unknown@example.com")
    assert page.heading == "Check your e-mail"
    assert "has no account" in mails_to("unknown@example.com")[0]


def test_a_link_of_a_mail_leads_to_the_deployment_whatever_host_was_named(
    browser: Browser, user: User, settings: Settings
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    fields = {"email": user.email, "csrfmiddlewaretoken": browser.token()}
    browser.client.post(reverse("account_reset_password"), fields, headers={"Host": "evil.example"})
    assert "evil.example" not in mails_to(user.email)[0]
    assert link_of(user.email).startswith("/account/password/reset/")


def test_changing_the_address(user: User) -> None:
    browser, old = signed_in(user), user.email
    page = browser.send(reverse("account_email"), email="New@Example.com", action_add="")
    assert page.heading == "Confirm it's you"
    browser.send(f"{page.path}?next={reverse('account_email')}", password=PASSWORD)
    assert "new@example.com" in browser.open(reverse("account_email")).text
    user.refresh_from_db()
    assert user.email == old
    assert browser.send(reverse("account_reset_password"), email="new@example.com").status == 200
    assert not any("/password/reset/" in body for body in mails_to("new@example.com")), "it may be a stranger's"
    browser.confirm_link(next(body for body in mails_to("new@example.com") if "/confirm-email/" in body))
    user.refresh_from_db()
    assert (user.email, browser.person()) == ("new@example.com", "new@example.com")
    assert list(EmailAddress.objects.filter(user=user).values_list("email", "verified")) == [(user.email, True)]
    assert "was changed to new@example.com" in mails_to(old)[-1]
    assert Browser().sign_in(old).heading == "Sign in"


def test_an_address_that_is_taken_concurrently(user: User) -> None:
    browser, old = signed_in(user), user.email
    page = browser.send(reverse("account_email"), email="new@example.com", action_add="")
    browser.send(f"{page.path}?next={reverse('account_email')}", password=PASSWORD)
    UserFactory(email="new@example.com", unconfirmed=True)
    shown = browser.confirm_link(mails_to("new@example.com")[0])
    user.refresh_from_db()
    assert user.email == old
    assert "is already the address of another account" in shown.text


def test_the_second_factor_is_set_up_and_asked_for(user: User) -> None:
    browser, setup = signed_in(user), reverse("mfa_activate_totp")
    assert browser.open(setup).heading == "Confirm it's you"
    page = browser.send(f"{reverse('account_reauthenticate')}?next={setup}", password=PASSWORD)
    (secret,) = re.findall(r'id="secret"[^>]*>([A-Z2-7]+)<', page.text)
    assert "data:image/svg+xml" in page.text
    app = App(secret=secret)
    assert "Incorrect code" in browser.send(setup, code=app.wrong_code()).text
    page = browser.send(setup, code=app.code())
    codes = re.findall(r"\b\d{8}\b", page.text)
    assert (page.heading, len(codes)) == ("Recovery codes", 10)
    assert not any(word in stored(user) for word in (secret, *codes))
    assert "authenticator app was set up" in mails_to(user.email)[-1]

    other = Browser()
    assert other.sign_in(user.email).heading == "Two-factor authentication"
    assert other.person() is None
    assert "Incorrect code" in other.send(reverse("mfa_authenticate"), code=app.wrong_code()).text
    code = app.code()
    other.send(reverse("mfa_authenticate"), code=code)
    assert other.person() == user.email
    third = Browser()
    third.sign_in(user.email)
    assert "Incorrect code" in third.send(reverse("mfa_authenticate"), code=code).text, "used"
    third.send(reverse("mfa_authenticate"), code=codes[0])
    assert third.person() == user.email
    assert "9 recovery codes left" in third.open(reverse("account")).text

    assert browser.send(reverse("mfa_deactivate_totp")).status == 200
    assert Browser().sign_in(user.email).heading != "Two-factor authentication"


def test_codes_tried_by_both_doors_share_one_budget(user: User, settings: Settings) -> None:
    app, browser = App(user), Browser()
    throttle(settings, second_factor=4)
    browser.sign_in(user.email)
    for _ in range(2):
        assert "Incorrect code" in browser.send(reverse("mfa_authenticate"), code=app.wrong_code()).text
        tried = {"email": user.email, "password": PASSWORD, "code": app.wrong_code()}
        assert Api().post("/v1/sessions", tried).status == 401
    assert "Too many attempts" in browser.send(reverse("mfa_authenticate"), code=app.code()).text
    assert browser.person() is None


def test_the_second_factor_stands_before_a_reset_too(browser: Browser, user: User) -> None:
    App(user)
    browser.send(reverse("account_reset_password"), email=user.email)
    page = browser.open(link_of(user.email))
    browser.send(page.path, password1=ANOTHER)
    assert browser.sign_in(user.email, ANOTHER).heading == "Two-factor authentication"
    assert browser.person() is None


def test_sessions_are_listed_and_ended(user: User) -> None:
    here, api = signed_in(user), Api.signed_in(user)
    there = Browser(
        agent="Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1"
    )
    there.sign_in(user.email)
    page = here.open(reverse("account_sessions"))
    assert "Firefox on Linux" in page.text
    assert "Safari on iPhone" in page.text
    assert "sin_" in page.text
    browser_end, api_end = sorted(set(re.findall(r"/account/sessions/\w+/end/", page.text)))
    stranger = signed_in(UserFactory())
    for browser in (stranger, here):
        assert browser.send(browser_end).heading == "Confirm it's you", "a stolen session ends no others"
        browser.prove()
    assert [stranger.send(path).status for path in (browser_end, api_end)] == [404, 404]
    here.send(browser_end)
    assert (here.person(), there.person(), api.get("/v1/account").status) == (user.email, None, 200)
    here.send(api_end)
    assert api.get("/v1/account").status == 401
    third, api = signed_in(user), Api.signed_in(user)
    here.send(reverse("account_end_other_sessions"))
    assert (here.person(), third.person(), api.get("/v1/account").status) == (user.email, None, 401)
    assert stranger.person() is not None


def test_deleting_the_account(user: User) -> None:
    browser, api, path = signed_in(user), Api.signed_in(user), reverse("account_delete")
    assert browser.open(path).heading == "Confirm it's you"
    browser.send(f"{reverse('account_reauthenticate')}?next={path}", password=PASSWORD)
    page = browser.send(path, email="other@example.com")
    assert "not the address of your account" in page.text
    assert 'value="other@example.com"' in page.text
    page = browser.send(path, email=user.email.upper())
    assert (page.heading, browser.person()) == ("Sign in", None)
    assert "was deleted" in page.text
    assert (User.objects.filter(pk=user.pk).exists(), api.get("/v1/account").status) == (False, 401)


def test_an_account_that_others_depend_on_is_kept_and_says_why(user: User) -> None:
    ProjectFactory(owner=user, name="Shop", member=UserFactory())
    browser, path = signed_in(user), reverse("account_delete")
    browser.send(f"{reverse('account_reauthenticate')}?next={path}", password=PASSWORD)
    page = browser.send(path, email=user.email)
    assert "Other people are members of “Shop”" in page.text
    assert f'value="{user.email}"' in page.text
    assert browser.person() == user.email


def test_the_admin_is_behind_the_same_door(browser: Browser) -> None:
    staff = create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    App(staff)
    page = browser.open("/admin/")
    assert (page.path, page.heading) == ("/account/login/", "Sign in")
    assert browser.sign_in(staff.email, next="/admin/").heading == "Two-factor authentication"
    assert browser.open("/admin/").heading == "Two-factor authentication"
    assert signed_in(UserFactory()).open("/admin/").status == 403


def test_the_admin_has_no_door_and_no_password_form_of_its_own() -> None:
    """Django's own sign-in would bypass the throttle, the second factor, the e-mail and the audit log."""
    staff = create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    other = create_account(email="other@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    App(other)
    browser = signed_in(staff)
    page = browser.send("/admin/login/", username=other.email, password=PASSWORD)
    assert (page.path, browser.person()) == ("/admin/", staff.email)
    new = {"old_password": PASSWORD, "new_password1": ANOTHER, "new_password2": ANOTHER}
    for path in ("/admin/password_change/", f"/admin/accounts/user/{staff.pk}/password/"):
        for page in (browser.open(path), browser.send(path, **new, password1=ANOTHER, password2=ANOTHER)):
            assert page.path == reverse("account_change_password")
    assert browser.open("/admin/password_change/done/").path == reverse("account")
    change = f"/admin/accounts/user/{staff.pk}/change/"
    browser.send(
        change, email="stolen@example.com", plan=str(staff.plan_id), is_active="on", is_staff="on", is_superuser="on"
    )
    staff.refresh_from_db()
    assert (staff.email, staff.check_password(PASSWORD)) == ("staff@example.com", True)
    assert mail.outbox == []
    browser.send("/admin/logout/")
    assert browser.person() is None


def test_a_password_that_staff_sets_is_mailed_and_ends_what_is_signed_in(user: User) -> None:
    inside, api = signed_in(user), Api.signed_in(user)
    staff = Browser()
    staff.sign_in(create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True).email)
    given = {"usable_password": "true", "password1": ANOTHER, "password2": ANOTHER}
    staff.send(f"/admin/accounts/user/{user.pk}/password/", **given)
    assert (inside.person(), api.get("/v1/account").status, user.api_sessions.count()) == (None, 401, 0)
    (body,) = mails_to(user.email)
    assert "staff of this service changed" in body
    assert "127.0.0.1" not in body


def test_staff_takes_a_lost_second_factor_away_and_sees_nothing_of_it(user: User) -> None:
    app, staff = App(user), Browser()
    staff.sign_in(create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True).email)
    page = staff.open("/admin/mfa/authenticator/", q=user.email)
    assert user.email in page.text
    for row in Authenticator.objects.filter(user=user):
        shown = staff.open(f"/admin/mfa/authenticator/{row.pk}/change/").text
        assert user.email in shown
        assert not any(word in shown for word in (app.secret, *row.data.values()) if isinstance(word, str))
        staff.send(f"/admin/mfa/authenticator/{row.pk}/delete/", post="yes")
    assert signed_in(user).person() == user.email


def test_what_has_run_out_is_swept(user: User) -> None:
    inside, api = signed_in(user), Api.signed_in(user)
    Browser().send(reverse("account_reset_password"), email="x@example.com")
    delete_expired(utc_now() + timedelta(days=13))
    assert (inside.person(), api.get("/v1/account").status) == (user.email, 200)
    delete_expired(utc_now() + timedelta(days=15))
    assert not Session.objects.exists()
    assert not user.api_sessions.exists()
    assert not UserSession.objects.exists()


def test_forms_without_their_token_do_nothing(user: User) -> None:
    browser = signed_in(user)
    for name in ("account_logout", "account_delete", "account_end_other_sessions", "account_change_password"):
        assert browser.client.post(reverse(name)).status_code == 403
    assert browser.person() == user.email


def test_pages_may_load_what_is_ours_alone(browser: Browser, user: User) -> None:
    for path in ("account_login", "account_signup", "account_reset_password"):
        policy = browser.open(reverse(path)).headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert {"object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    cookies = signed_in(user).client.cookies
    assert all(cookies[name]["httponly"] and cookies[name]["samesite"] == "Lax" for name in ("sessionid", "csrftoken"))


def test_a_session_ends_by_itself(user: User) -> None:
    browser = signed_in(user)
    with time_machine.travel(utc_now() + timedelta(days=14, minutes=1)):
        assert browser.person() is None
    assert mail.outbox == []
