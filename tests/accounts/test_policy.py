"""The Content-Security-Policy of pages that are not allauth's: one policy for all."""

from __future__ import annotations

from django.urls import reverse

from accounts.models import User
from accounts.services import create_account
from tests.accounts.browser import Browser, signed_in
from tests.helpers import PASSWORD


def test_the_admin_has_it_too(browser: Browser) -> None:
    browser.sign_in(create_account(email="s@example.com", password=PASSWORD, is_staff=True, is_superuser=True).email)
    page = browser.open("/admin/")
    assert page.status == 200
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert " style=" not in page.text
    assert "<script>" not in page.text


def test_pages_with_one_of_their_own_keep_it(browser: Browser) -> None:
    assert "style-src 'self' 'unsafe-inline'" in browser.open("/docs").headers["Content-Security-Policy"]


def test_a_nonce_is_used_once(browser: Browser) -> None:
    path = reverse("account_login")
    policies = {browser.open(path).headers["Content-Security-Policy"] for _ in range(3)}
    assert len(policies) == 3
    assert all("'nonce-" in policy for policy in policies)


def test_what_is_said_of_an_account_is_kept_by_no_cache(user: User) -> None:
    browser = signed_in(user)
    for name in ("account", "account_sessions"):
        assert "no-store" in browser.open(reverse(name)).headers["Cache-Control"]
