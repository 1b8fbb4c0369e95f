"""Signing in at a certified provider: which account it opens, and when it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings
from social_django.models import Association, UserSocialAuth

from accounts.models import User
from accounts.services import is_verified
from audit.models import Entry
from core.clock import utc_now
from signin.social.openid import _verified_address
from signin.tasks import delete_expired
from tests.accounts.browser import Browser, mails_to, signed_in
from tests.factories import UserFactory
from tests.helpers import run_concurrently
from tests.oidc.provider import CALLBACK, EMAIL, Provider, begin, come_back, consent, sign_in
from tests.second_factor import App


def links() -> list[str]:
    return list(UserSocialAuth.objects.filter(provider="oidc").values_list("uid", flat=True))


def test_somebody_new(browser: Browser, provider: Provider) -> None:
    assert "Sign in with Acme" in browser.open(reverse("account_login")).text
    page = sign_in(browser, next="/account/sessions/")
    user = User.objects.get(email=EMAIL)
    assert (page.path, browser.person(), is_verified(user)) == ("/account/sessions/", EMAIL, True)
    assert (user.has_usable_password(), user.is_staff, links()) == (False, False, [f"{provider.issuer} ada"])


def test_the_subject_counts_and_not_the_address(browser: Browser, provider: Provider) -> None:
    sign_in(browser)
    for email, verified in (("ada@new.example", True), (EMAIL, False), (None, None)):
        provider.person(email=email, email_verified=verified)
        again = Browser()
        sign_in(again)
        assert again.person() == EMAIL
    assert User.objects.filter(email="ada@new.example").count() == 0


def test_what_is_sent_to_the_provider(browser: Browser, provider: Provider) -> None:
    first, second = ({k: v[0] for k, v in parse_qs(urlsplit(begin(browser)).query).items()} for _ in range(2))
    assert (first["response_type"], first["code_challenge_method"], first["scope"]) == ("code", "S256", "openid email")
    assert first["redirect_uri"] == CALLBACK
    for fresh in ("state", "nonce", "code_challenge"):
        assert first[fresh] != second[fresh]
        assert len(first[fresh]) >= 32
    assert "max_age" not in first


def test_an_account_of_the_verified_address_is_joined(browser: Browser, provider: Provider) -> None:
    user = UserFactory(email=EMAIL)
    provider.person(email="Ada@Example.com")
    sign_in(browser)
    assert browser.person() == EMAIL
    assert "at Acme was linked to your Pulsekeeper account" in mails_to(EMAIL)[0]
    assert signed_in(user).person() == EMAIL, "the password is what it was"


@pytest.mark.parametrize("verified", [False, None, "false", "true", 1])
def test_an_address_that_is_not_verified_opens_and_creates_nothing(
    browser: Browser, provider: Provider, verified: Any
) -> None:
    UserFactory(email=EMAIL)
    provider.person(email_verified=verified)
    page = sign_in(browser)
    assert (page.status, browser.person(), links()) == (400, None, [])
    assert "Acme has no verified e-mail address for you" in page.text
    provider.person(email="new@example.com", email_verified=verified)
    assert sign_in(browser).status == 400
    assert not User.objects.filter(email="new@example.com").exists()


def test_entra_says_it_with_another_claim(browser: Browser, provider: Provider) -> None:
    address = {"email": EMAIL}
    assert _verified_address([address | {"xms_edov": True}]) == EMAIL
    assert _verified_address([address | {"xms_edov": "1"}]) == EMAIL
    assert _verified_address([address | {"xms_edov": False}]) is None
    assert _verified_address([address | {"xms_edov": True, "email_verified": False}]) is None
    assert _verified_address([address, address | {"email_verified": True}]) is None, "both claims come from one source"


def test_a_reused_address_does_not_open_the_account_of_its_former_owner(browser: Browser, provider: Provider) -> None:
    sign_in(browser)
    provider.person(sub="another")
    other = Browser()
    page = sign_in(other)
    assert (page.status, other.person(), len(links())) == (400, None, 1)


def test_another_issuer_is_linked_beside_the_former(browser: Browser, provider: Provider) -> None:
    user = UserFactory(email=EMAIL)
    UserSocialAuth.objects.create(user=user, provider="oidc", uid="https://former.example ada")
    sign_in(browser)
    assert (browser.person(), len(links())) == (EMAIL, 2)


def test_keys_are_rotated(browser: Browser, provider: Provider) -> None:
    sign_in(browser)
    provider.change()
    sign_in(Browser())
    paths = provider.change()
    assert not {"/.well-known/openid-configuration", "/jwks"}.intersection(paths), "cached"
    provider.change(rotate=True)
    again = Browser()
    sign_in(again)
    assert again.person() == EMAIL
    assert provider.change().count("/jwks") == 1


def test_an_expired_code(browser: Browser, provider: Provider) -> None:
    callback = consent(begin(browser))
    provider.change(skew=3600)
    page = come_back(browser, callback)
    assert (page.status, browser.person()) == (400, None)
    assert "no longer accepts this code" in page.text


def test_a_replayed_response(browser: Browser, provider: Provider) -> None:
    callback = consent(begin(browser))
    come_back(browser, callback)
    browser.send(reverse("account_logout"))
    page = come_back(browser, callback)
    assert (page.status, browser.person()) == (400, None)


def test_a_replayed_code_in_a_new_flow(browser: Browser, provider: Provider) -> None:
    used = consent(begin(browser))
    come_back(browser, used)
    other = Browser()
    fresh = {name: values[0] for name, values in parse_qs(urlsplit(consent(begin(other))).query).items()}
    fresh["code"] = parse_qs(urlsplit(used).query)["code"][0]
    page = come_back(other, f"{CALLBACK}?{urlencode(fresh)}")
    assert (page.status, other.person()) == (400, None)


def test_a_response_for_another_browser(browser: Browser, provider: Provider) -> None:
    """Sign-in CSRF: a link with the code of an attacker does not sign a victim in to the attacker's account."""
    callback = consent(begin(Browser()))
    begin(browser)
    assert (come_back(browser, callback).status, browser.person()) == (400, None)


def test_a_response_of_another_issuer(browser: Browser, provider: Provider) -> None:
    callback = consent(begin(browser))
    query = {name: values[0] for name, values in parse_qs(urlsplit(callback).query).items()}
    page = come_back(browser, f"{CALLBACK}?{urlencode(query | {'iss': 'https://evil.example'})}")
    assert (page.status, browser.person()) == (400, None)


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_next_does_not_lead_to_other_hosts(browser: Browser, provider: Provider, target: str) -> None:
    callback = urlsplit(consent(begin(browser, next=target)))
    answer = browser.client.get(f"{callback.path}?{callback.query}")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_a_link_alone_begins_nothing(provider: Provider) -> None:
    path = reverse("social_begin", kwargs={"provider": "oidc"})
    client = Client(enforce_csrf_checks=True)
    assert (client.get(path).status_code, client.post(path).status_code) == (405, 403)


def test_the_page_may_not_send_forms_elsewhere(browser: Browser, provider: Provider) -> None:
    policy = browser.open(reverse("account_login")).headers["Content-Security-Policy"]
    assert "form-action 'self';" in policy + ";"


def test_a_deactivated_account(browser: Browser, provider: Provider, settings: Settings) -> None:
    settings.OIDC_STAFF_GROUPS = ("ops",)
    provider.person(groups=["ops"])
    user = UserFactory(email=EMAIL)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert sign_in(browser).heading == "Account deactivated"
    user.refresh_from_db()
    assert (browser.person(), user.is_staff) == (None, False)


def test_our_second_factor_is_asked_for(browser: Browser, provider: Provider) -> None:
    app = App(UserFactory(email=EMAIL))
    assert sign_in(browser).heading == "Two-factor authentication"
    assert browser.person() is None
    browser.send(reverse("mfa_authenticate"), code=app.code())
    assert browser.person() == EMAIL


def test_two_first_sign_ins_at_once(provider: Provider) -> None:
    browsers = [Browser() for _ in range(4)]
    callbacks = [consent(begin(browser)) for browser in browsers]

    def arrive(browser: Browser, callback: str) -> Any:
        come_back(browser, callback)
        return browser.person()

    pairs = zip(browsers, callbacks, strict=True)
    assert run_concurrently(*[lambda pair=pair: arrive(*pair) for pair in pairs]) == [EMAIL] * 4
    assert (User.objects.filter(email=EMAIL).count(), len(links())) == (1, 1)


def test_linking_needs_no_address_at_the_provider(provider: Provider) -> None:
    provider.person(email=None, email_verified=None)
    user = UserFactory()
    browser = signed_in(user)
    browser.prove()
    assert "You can now sign in with Acme" in sign_in(browser).text
    other = Browser()
    sign_in(other)
    assert other.person() == user.email


def test_confirming_asks_for_the_credentials_again(browser: Browser, provider: Provider) -> None:
    sign_in(browser)
    path = reverse("account_set_password")
    assert browser.open(path).heading == "Confirm it's you"
    address = begin(browser, again="1", next=path)
    assert parse_qs(urlsplit(address).query)["max_age"] == ["0"]
    come_back(browser, consent(address))
    assert browser.open(path).path == path
    provider.person(sub="another")
    page = come_back(browser, consent(begin(browser, again="1", next=path)))
    assert (page.status, "is not linked to the account" in page.text) == (400, True)


def test_nothing_of_the_provider_is_kept_but_who_it_is(browser: Browser, provider: Provider) -> None:
    callback = consent(begin(browser))
    code = parse_qs(urlsplit(callback).query)["code"][0]
    come_back(browser, callback)
    kept = str(dict(browser.client.session)) + str(list(Entry.objects.values()))
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(row)::text FROM social_auth_usersocialauth row")
        kept += str(cursor.fetchall())
    assert code not in kept
    assert "access_token" not in kept
    assert "id_token" not in kept
    assert not Association.objects.exists(), "the nonce is used up"
    assert not mail.outbox


def test_a_client_secret_that_is_wrong(browser: Browser, provider: Provider, settings: Settings) -> None:
    callback = consent(begin(browser))
    settings.OIDC_CLIENT_SECRET = "another"
    page = come_back(browser, callback)
    assert (page.status in (400, 502), browser.person()) == (True, None)
    assert "another" not in page.text


def test_it_is_off_without_settings(browser: Browser, provider: Provider, settings: Settings) -> None:
    settings.OIDC_ISSUER = ""
    assert "Acme" not in browser.open(reverse("account_login")).text
    assert browser.send(reverse("social_begin", kwargs={"provider": "oidc"})).status == 404


def test_what_an_unfinished_sign_in_leaves_is_swept(browser: Browser, provider: Provider) -> None:
    begin(browser)
    assert Association.objects.count() == 1
    delete_expired(utc_now() + timedelta(hours=2))
    assert not Association.objects.exists()
