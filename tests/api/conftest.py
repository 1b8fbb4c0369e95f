"""Callers of the API, and a worker for the endpoints that wait for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery.contrib.testing.worker import start_worker
from pytest_django.fixtures import Settings

from accounts.models import User
from config.celery import app
from monitors.checking.runner import drain
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import flush_broker


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


@pytest.fixture
def api(user: User) -> Api:
    return Api.signed_in(user)


@pytest.fixture
def worker(transactional_db: None) -> Iterator[None]:
    """A real worker on the real broker, in threads of this process. It sees committed rows only."""
    flush_broker()
    queues = ["interactive", "probes", "dispatch", "alerts"]
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, queues=queues):
        yield
    drain(grace_sec=0)
