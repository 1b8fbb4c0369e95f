"""Two providers on loopback, and one person who may link them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.api.client import Api
from tests.connectors.linking import Place, place
from tests.makers import make_user


@pytest.fixture(autouse=True)
def _cheap_and_unthrottled(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def user(transactional_db: None) -> User:
    """Rows are committed: the network is never awaited inside a transaction, and so not in a test's."""
    return make_user()


@pytest.fixture
def api(user: User) -> Api:
    return Api.signed_in(user)


@pytest.fixture
def vercel(settings: Settings) -> Iterator[Place]:
    with place(settings, "vercel") as there:
        yield there
