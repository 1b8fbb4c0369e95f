"""Users with browsers, and their e-mail."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.accounts.browser import Browser
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def _cheap_open_and_unthrottled(settings: Settings, transactional_db: None) -> None:
    """E-mail is sent after a commit, so the tests commit."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.THROTTLE_SCALE = 0
    settings.SIGN_UP = True
    settings.BASE_URL = "http://testserver"
    UserFactory(plan__name="free")  # restores the plan, which transactional tests truncate


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def browser() -> Browser:
    return Browser()
