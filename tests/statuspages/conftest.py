from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django.fixtures import Settings

from accounts.models import User
from statuspages import caching
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def _unthrottled_and_forgetful(settings: Settings) -> Iterator[None]:
    settings.THROTTLE_SCALE = 0
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    caching.clear_local_caches()
    yield
    caching.clear_local_caches()


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()
