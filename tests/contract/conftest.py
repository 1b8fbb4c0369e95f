"""Callers, targets, and one worker for all tests of a module, because starting and stopping it takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery.contrib.testing.worker import start_worker
from django.conf import settings as django_settings

from accounts.models import User
from config.celery import app
from tests.api.client import Api
from tests.api.conftest import _unthrottled, api, user
from tests.factories import UserFactory
from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer

__all__ = ["_unthrottled", "api", "user"]  # fixtures, which pytest finds by their names


@pytest.fixture(scope="module")
def _running_worker(django_db_setup: None) -> Iterator[None]:
    with redis.Redis.from_url(str(django_settings.REDIS_URL)) as broker:
        broker.flushdb()
    queues = ["interactive", "probes", "dispatch"]
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, queues=queues):
        yield


@pytest.fixture
def worker(_running_worker: None, transactional_db: None) -> None:
    """A real worker on the real broker, in threads of this process. It sees committed rows only."""


@pytest.fixture
def owner(worker: None) -> User:
    """An account on the plan `pro`, committed, so that the worker sees its rows."""
    return UserFactory()


@pytest.fixture
def live(owner: User) -> Api:
    """The owner's session, with a worker behind the API."""
    return Api.signed_in(owner)


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def snapshot() -> Path:
    """docs/openapi.json, which tests/api/test_errors.py compares with what is served."""
    return Path(__file__).parents[2] / "docs" / "openapi.json"
