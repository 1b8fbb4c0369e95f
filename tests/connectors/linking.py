"""Linking an account at a provider, as a user does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.test import Client

from tests.api.client import Api
from tests.connectors.fakes import FakeNetlify, FakeVercel

PLAIN_WORDS = {"vercel": "vercel", "netlify": "netlify"}
OWN_WORDS = {"provider_a": "vercel", "provider_b": "netlify"}
FAKES: dict[str, type[FakeNetlify | FakeVercel]] = {"vercel": FakeVercel, "netlify": FakeNetlify}


@dataclass(frozen=True)
class Place:
    """A provider, and its name in our paths."""

    word: str
    fake: FakeNetlify | FakeVercel

    @property
    def path(self) -> str:
        return f"/v1/connectors/{self.word}"

    def begin(self, api: Api) -> str:
        answer = api.post(f"{self.path}/oauth/start")
        assert answer.status == 200, answer.text
        url: str = answer.json["authorize_url"]
        return url

    def link(self, api: Api) -> None:
        page = come_back(self.fake.consent(self.begin(api)))
        assert page.status_code == 200, page.content.decode()

    def refs(self) -> list[str]:
        return [project.ref for project in self.fake.projects]


@contextmanager
def place(settings: Any, backend: str, *, word: str | None = None, **of_fake: Any) -> Iterator[Place]:
    """Configure a deployment with this name for the provider, regardless of CONNECTORS in the environment."""
    word = word or backend
    settings.CONNECTORS = OWN_WORDS if word in OWN_WORDS else PLAIN_WORDS
    redirect_uri = f"{django_settings.BASE_URL}/connectors/{word}/callback"
    with FAKES[backend](redirect_uri=redirect_uri, **of_fake) as fake:
        fake.configure(settings)
        yield Place(word, fake)


def come_back(address: str, browser: Client | None = None) -> Any:
    """Return the page to which the provider redirects the browser, by default a browser that is signed out."""
    parts = urlsplit(address)
    browser = browser or Client(raise_request_exception=False)
    return browser.get(f"{parts.path}?{parts.query}")
