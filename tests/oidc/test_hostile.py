"""A provider that answers wrongly, slowly or not at all opens no account, and nothing else waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from signin.social.openid import MAX_BODY, MAX_REQUESTS, _is_url
from tests.accounts.browser import Browser
from tests.factories import UserFactory
from tests.oidc.hostile import SECRET, Hostile
from tests.oidc.provider import EMAIL

BEGIN = "/account/with/oidc/"


@pytest.fixture
def hostile(settings: Settings) -> Iterator[Hostile]:
    with Hostile() as server:
        server.configure(settings)
        yield server


def refused(hostile: Hostile) -> int:
    """Return the status of an attempt that is refused and creates nothing."""
    browser = Browser()
    page = hostile.arrive(browser)
    assert browser.person() is None
    assert not User.objects.filter(email=EMAIL).exists()
    assert page.heading == "Sign-in with Acme failed"
    return page.status


def test_the_right_answers_are_accepted(browser: Browser, hostile: Hostile) -> None:
    hostile.arrive(browser)
    assert browser.person() == EMAIL
    assert "/me" not in hostile.paths, "the ID token has the address"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": ["another-client"]},
        {"aud": None},
        {"aud": ["pulsekeeper", "another-client"]},  # without azp
        {"aud": ["pulsekeeper", "another-client"], "azp": "another-client"},
        {"nonce": "that-of-another-browser"},
        {"nonce": ""},
        {"nonce": None},
        {"nonce": 7},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"iat": 1_000_000_000},
        {"iat": None},
        {"iat": "now"},
        {"nbf": 9_000_000_000},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\0b"},
        {"sub": "x" * 256},
        {"at_hash": "of-another-token"},
        {"email": 7},
        {"email": ["ada@example.com"]},
        {"email": "no address"},
        {"email": "a\0b@example.com"},
    ],
    ids=str,
)
def test_claims_that_are_wrong(hostile: Hostile, claims: dict[str, Any]) -> None:
    hostile.claims = claims
    assert refused(hostile) == 502


OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "sign",
    [
        lambda claims: jwt.encode(claims, OTHER, algorithm="RS256", headers={"kid": "one"}),
        lambda claims: jwt.encode(claims, OTHER, algorithm="RS256", headers={"kid": "two"}),
        lambda claims: jwt.encode(claims, OTHER, algorithm="RS256"),
        lambda claims: jwt.encode(claims, None, algorithm="none"),  # type: ignore[arg-type]
        lambda claims: jwt.encode(claims, None, algorithm="none", headers={"kid": "one"}),  # type: ignore[arg-type]
        lambda claims: jwt.encode(claims, SECRET, algorithm="HS256", headers={"kid": "one"}),
        lambda claims: jwt.encode(claims, CURVE, algorithm="ES256", headers={"kid": "one"}),
        lambda _: "no.token",
        lambda _: "",
        lambda _: 7,
        lambda _: None,
        lambda _: {"sub": "ada"},
    ],
)
def test_signatures_that_are_wrong(hostile: Hostile, sign: Callable[[dict[str, Any]], Any]) -> None:
    hostile.sign = sign
    assert refused(hostile) == 502


@pytest.mark.parametrize(
    "keys",
    [
        None,
        {},
        [],
        [7],
        [{}],
        [{"kid": "one"}],
        [{"kid": "one", "kty": "RSA", "alg": "RS256", "n": 7, "e": None}],
        [{"kid": "one", "kty": "oct", "alg": "HS256", "k": "c2VjcmV0"}],
    ],
    ids=str,
)
def test_keys_that_are_wrong(hostile: Hostile, keys: Any) -> None:
    hostile.keys = keys
    assert refused(hostile) == 502


def test_a_key_for_one_algorithm_verifies_no_other(hostile: Hostile) -> None:
    """The public key as the secret of HMAC, which forges tokens where the algorithm of the token is trusted."""
    hostile.keys = [hostile.public(hostile.key, alg="HS256")]
    assert refused(hostile) == 502


def test_another_algorithm(browser: Browser, hostile: Hostile) -> None:
    hostile.keys = [hostile.public(CURVE, alg="ES256")]
    hostile.sign = lambda claims: jwt.encode(claims, CURVE, algorithm="ES256", headers={"kid": "one"})
    hostile.arrive(browser)
    assert browser.person() == EMAIL


@pytest.mark.parametrize(
    ("claims", "userinfo"),
    [
        ({"email": None}, {"sub": "another"}),
        ({"email": None}, {"sub": None}),
        ({"email": None}, {"sub": 7}),
    ],
)
def test_user_info_of_another_person(hostile: Hostile, claims: dict[str, Any], userinfo: dict[str, Any]) -> None:
    hostile.claims, hostile.userinfo = claims, userinfo
    assert refused(hostile) == 502


def test_an_address_and_its_verification_come_from_one_document(hostile: Hostile) -> None:
    hostile.claims = {"email": "ada@example.com", "email_verified": None, "groups": None}
    hostile.userinfo = {"email": "mallory@evil.example", "email_verified": True}
    assert refused(hostile) == 400


def test_groups_that_the_provider_left_out(
    browser: Browser, hostile: Hostile, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Entra leaves a long list of groups out. Roles stay then."""
    settings.OIDC_STAFF_GROUPS = ("dev",)
    hostile.arrive(browser)
    for left_out in ({"hasgroups": True}, {"_claim_names": {"groups": "src1"}}):
        hostile.claims = {"groups": None, **left_out}
        assert hostile.arrive(Browser()).status == 400
        assert User.objects.get(email=EMAIL).is_staff
    assert "has left out the claim 'groups'" in caplog.text


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "//evil.example/auth"},
        {"authorization_endpoint": f"https://acme.example/{'a' * 300}"},
        {"authorization_endpoint": 7},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": "https://[::1"},
        {"jwks_uri": None},
        {"userinfo_endpoint": 7},
    ],
    ids=str,
)
def test_discovery_that_is_wrong(browser: Browser, hostile: Hostile, discovery: dict[str, Any]) -> None:
    hostile.discovery = discovery
    page = browser.send(BEGIN)
    assert (page.status, page.heading) == (502, "Sign-in with Acme failed")


def test_endpoints_without_tls_of_an_issuer_with_tls() -> None:
    assert not _is_url("http://acme.example/auth", ("https",))


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/token", "/me"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"null", b"[" * 50_000, b'"' + b"x" * MAX_BODY + b'"'], ids=range(7)
)
def test_documents_that_are_wrong(hostile: Hostile, path: str, body: bytes) -> None:
    hostile.claims = {"email": None}
    hostile.bodies[path] = body or b" "
    browser = Browser()
    page = browser.send(BEGIN) if "known" in path else hostile.arrive(browser)
    assert (page.status, browser.person()) == (502, None)


def test_a_redirect_to_this_machine_is_not_followed(hostile: Hostile, settings: Settings) -> None:
    """Addresses that serve credentials of clouds are refused, also as an endpoint of the provider."""
    hostile.discovery = {"token_endpoint": "http://169.254.169.254/latest/meta-data"}
    assert refused(hostile) == 502


def test_confirming_with_an_old_sign_in_at_the_provider(browser: Browser, hostile: Hostile) -> None:
    hostile.arrive(browser)
    now = int(time.time())
    for old in (now - 3600, now - 3600.5, str(now), True, float("nan")):
        hostile.claims = {"auth_time": old}
        page = hostile.arrive(browser, again="1", next="/account/")
        assert (page.status, "did not ask for your credentials again" in page.text) == (400, True), old
    hostile.claims = {"auth_time": now}
    assert hostile.arrive(browser, again="1", next="/account/").path == "/account/"


def test_an_address_that_only_looks_like_another_opens_no_account(browser: Browser, hostile: Hostile) -> None:
    """The lower case of the Kelvin sign is k."""
    UserFactory(email="kay@example.com")
    hostile.claims = {"email": "\N{KELVIN SIGN}ay@example.com"}
    page = hostile.arrive(browser)
    assert (page.status, browser.person()) == (502, None)


def test_beginning_is_limited(hostile: Hostile, settings: Settings) -> None:
    """Each attempt stores a session and a nonce, and makes a page that may have to ask the provider."""
    settings.THROTTLE_SCALE, settings.THROTTLES = 1, {**settings.THROTTLES, "sign-in-elsewhere": (3, 60)}
    browser, other = Browser(), Browser()
    token = browser.token()
    statuses = [browser.client.post(BEGIN, {"csrfmiddlewaretoken": token}).status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    other.client.defaults["REMOTE_ADDR"] = "192.0.2.7"
    assert other.client.post(BEGIN, {"csrfmiddlewaretoken": other.token()}).status_code == 200


def test_a_provider_that_hangs_takes_nothing_with_it(hostile: Hostile, settings: Settings) -> None:
    """The sign-in page does not ask it, and requests to it have few places."""
    UserFactory(email="bob@example.com")
    hostile.silent = {"/.well-known/openid-configuration"}
    other = Browser()
    other.client.defaults["REMOTE_ADDR"] = "192.0.2.7"
    waiting = [threading.Thread(target=lambda: Browser().send(BEGIN)) for _ in range(MAX_REQUESTS)]
    try:
        for thread in waiting:
            thread.start()
        for _ in waiting:
            hostile.wait_until_asked()
        page = other.send(BEGIN)
        assert (page.status, "is slow to answer" in page.text) == (502, True)
        assert "Sign in with Acme" in Browser().open(reverse("account_login")).text
        other.sign_in("bob@example.com")
        assert other.person() == "bob@example.com"
    finally:
        hostile._over.set()
        for thread in waiting:
            thread.join()


def test_a_provider_that_is_away_is_asked_again(browser: Browser, hostile: Hostile) -> None:
    hostile.bodies["/.well-known/openid-configuration"] = b"{"
    assert browser.send(BEGIN).status == 502
    hostile.bodies.clear()
    hostile.arrive(browser)
    assert browser.person() == EMAIL


def test_readiness_does_not_depend_on_it(browser: Browser, hostile: Hostile) -> None:
    answer = json.dumps(json.loads(browser.open("/readyz").text))
    assert "oidc" not in answer.lower()
    assert hostile.paths == []
