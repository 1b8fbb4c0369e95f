"""Somebody who is signed in to the pages."""

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
    """Of `user`, with the session that signing in leaves."""
    client.force_login(user)
    return client
