"""A signed-in user of the pages."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


@pytest.fixture
def web(client: Client, user: User) -> Client:
    """A client with a session of `user`, as after signing in."""
    client.force_login(user)
    return client
