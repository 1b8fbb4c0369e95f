"""The certified provider of provider.mjs as a process, and a browser's way through it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import requests
from django.urls import reverse

from tests.accounts.browser import Browser, Page

HERE = Path(__file__).parent
CALLBACK = "http://testserver/account/with/oidc/callback"
MISSING = "tests of OpenID Connect need Node.js and npm: apt install nodejs npm"
CLIENT_ID = "pulsekeeper"
CLIENT_SECRET = "provider-secret"
EMAIL = "ada@example.com"
ADA = {"sub": "ada", "email": EMAIL, "email_verified": True}


def install() -> None:
    """Install what package-lock.json pins, once. Test processes wait for the one that does.

    Skip tests without npm, and fail them in CI.
    """
    if shutil.which("npm") is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    installed, lock = HERE / "node_modules" / ".package-lock.json", HERE / "package-lock.json"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],
                cwd=HERE, stdin=subprocess.DEVNULL, check=True,
            )  # fmt: skip


class Provider:
    """`issuer`: its address, and with it the OIDC_ISSUER of the settings that `configure` sets."""

    def __init__(self, callback: str = CALLBACK) -> None:
        self._callback = callback

    def __enter__(self) -> Self:
        install()
        self._process = subprocess.Popen(
            ["node", str(HERE / "provider.mjs"), self._callback],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.issuer = self._process.stdout.readline().strip()
        assert self.issuer, "the provider did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def configure(self, settings: Any) -> None:
        settings.OIDC_ISSUER, settings.OIDC_NAME = self.issuer, "Acme"
        settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET

    def change(self, **change: Any) -> list[str]:
        """Change what provider.mjs lists. Return the paths of the requests since the last change."""
        paths: list[str] = requests.post(f"{self.issuer}/test", json=change, timeout=10).json()
        return paths

    def person(self, **claims: Any) -> None:
        """Let this person sign in next: ADA with these claims. None leaves a claim out."""
        self.change(person={name: value for name, value in (ADA | claims).items() if value is not None})


def begin(browser: Browser, **fields: str) -> str:
    """Press the button. Return the address at the provider that the page leads to."""
    path = reverse("social_begin", kwargs={"provider": "oidc"})
    answer = browser.client.post(path, {**fields, "csrfmiddlewaretoken": browser.token()})
    assert answer.status_code == 200, answer.content
    text = answer.content.decode()
    address = unescape(text.partition('content="0; url=')[2].partition('"')[0])
    assert f'href="{address}"' in unescape(text), "also a link, for browsers that do not refresh"
    return address


def consent(address: str) -> str:
    """Follow the provider's redirects, and return the address of Pulsekeeper that they lead to."""
    with requests.Session() as session:
        session.trust_env = False
        while not address.startswith(CALLBACK):
            answer = session.get(address, timeout=10, allow_redirects=False)
            assert answer.is_redirect, answer.text
            address = urljoin(address, answer.headers["Location"])
    return address


def come_back(browser: Browser, callback: str) -> Page:
    parts = urlsplit(callback)
    return browser.open(parts.path, **{name: values[0] for name, values in parse_qs(parts.query).items()})


def sign_in(browser: Browser, **fields: str) -> Page:
    return come_back(browser, consent(begin(browser, **fields)))
