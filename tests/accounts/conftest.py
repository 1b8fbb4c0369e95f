"""People with browsers, and the mail that they get."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.accounts.browser import Browser
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def _cheap_open_and_unthrottled(settings: Settings, transactional_db: None) -> None:
    """Mail goes out after a commit, so there have to be commits."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.THROTTLE_SCALE = 0
    settings.SIGN_UP = True
    settings.BASE_URL = "http://testserver"
    UserFactory(plan__name="free")  # brings the plan back, which a test of transactions takes away behind itself


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def browser() -> Browser:
    return Browser()
