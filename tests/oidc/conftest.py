from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from tests.accounts.conftest import _cheap_open_and_unthrottled, browser, user
from tests.oidc.provider import Provider

__all__ = ["_cheap_open_and_unthrottled", "browser", "user"]


@pytest.fixture(scope="session")
def _provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def provider(_provider: Provider, settings: Settings) -> Provider:
    settings.SIGN_UP = False
    _provider.configure(settings)
    _provider.change(slow=False, skew=0)
    _provider.person()
    return _provider
