"""A user with a browser: reads pages, fills in forms, follows links in e-mails."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.core import mail
from django.test import Client
from django.urls import reverse

from accounts.models import User
from tests.helpers import PASSWORD


class Page:
    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.headers = response.headers
        self.text = unescape(response.content.decode())
        steps = [where for where, _ in getattr(response, "redirect_chain", [])]
        self.path: str = (steps[-1] if steps else response.request["PATH_INFO"]).partition("?")[0]

    @property
    def heading(self) -> str:
        found = re.search(r"<h1>(.*?)</h1>", self.text, re.S)
        return "" if found is None else found[1].strip()


class Browser:
    def __init__(
        self, *, agent: str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    ) -> None:
        self.client = Client(enforce_csrf_checks=True, headers={"User-Agent": agent}, raise_request_exception=False)

    def open(self, path: str, **query: str) -> Page:
        return Page(self.client.get(path, query, follow=True))

    def send(self, path: str, **fields: str) -> Page:
        """Send a form with the CSRF token of its page."""
        return Page(self.client.post(path, {**fields, "csrfmiddlewaretoken": self.token()}, follow=True))

    def token(self) -> str:
        if "csrftoken" not in self.client.cookies:
            self.client.get(reverse("account_login"))
        return str(self.client.cookies["csrftoken"].value)

    def sign_in(self, email: str, password: str = PASSWORD, **more: str) -> Page:
        return self.send(reverse("account_login"), login=email, password=password, **more)

    def sign_up(self, email: str, password: str = "") -> Page:
        """Without a link opened before, the page ignores the password and sends one."""
        fields = {"password1": password} if password else {}
        return self.send(reverse("account_signup"), email=email, **fields)

    def choose_password(self, to: str, password: str = PASSWORD) -> Page:
        """Open the link in the sign-up e-mail, and sign up with this password."""
        self.follow(to)
        return self.sign_up(to, password)

    def prove(self, *, to: str = "/account/") -> Page:
        """Enter the password again, and continue to that page."""
        return self.send(f"{reverse('account_reauthenticate')}?next={to}", password=PASSWORD)

    def prove_by_mail(self, email: str, *, to: str = "/account/") -> Page:
        """Enter the code from the e-mail, for accounts without a password."""
        path = f"{reverse('account_reauthenticate_by_mail')}?next={to}"
        self.send(path, send="")
        return self.send(path, code=code_of(email))

    def follow(self, to: str) -> Page:
        """Open the link in the last e-mail to that address, and confirm with the button."""
        return self.open(link_of(to))

    def confirm(self, to: str) -> Page:
        return self.send(link_of(to))

    def confirm_link(self, body: str) -> Page:
        return self.send(_link(body))

    def person(self) -> str | None:
        """Return the address of the signed-in account, from the footer of the navigation."""
        answer = self.client.get(reverse("account"))
        return getattr(answer.wsgi_request.user, "email", None) if answer.status_code == 200 else None


def mails_to(to: str) -> list[str]:
    return [str(message.body) for message in mail.outbox if message.to == [to]]


def code_of(to: str) -> str:
    (code,) = re.findall(r"^(\d{4} \d{4})$", mails_to(to)[-1], re.M)
    return str(code)


def link_of(to: str) -> str:
    return _link(mails_to(to)[-1])


def _link(body: str) -> str:
    (link,) = re.findall(r"http://testserver(/account/\S+)", body)
    return str(link)


def signed_in(user: User) -> Browser:
    browser = Browser()
    browser.sign_in(user.email)
    assert browser.person() == user.email
    return browser
