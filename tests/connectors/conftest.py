"""Providers on loopback, and a deployment that is registered with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from connectors.services import redirect_uri
from tests.connectors.fakes import FakeNetlify, FakeVercel
from tests.connectors.linking import PLAIN_WORDS


@pytest.fixture
def vercel(settings: Settings) -> Iterator[FakeVercel]:
    with FakeVercel(redirect_uri=redirect_uri("vercel")) as fake:
        settings.CONNECTORS = PLAIN_WORDS
        fake.configure(settings)
        yield fake


@pytest.fixture
def netlify(settings: Settings) -> Iterator[FakeNetlify]:
    with FakeNetlify(redirect_uri=redirect_uri("netlify")) as fake:
        settings.CONNECTORS = PLAIN_WORDS
        fake.configure(settings)
        yield fake


@pytest.fixture(params=["vercel", "netlify"])
def fake(request: pytest.FixtureRequest) -> FakeVercel | FakeNetlify:
    """Each provider in turn."""
    found: FakeVercel | FakeNetlify = request.getfixturevalue(request.param)
    return found
