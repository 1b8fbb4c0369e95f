"""Answers of endpoints that wait for a worker when no worker runs."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
import redis
from django.conf import settings

from core import replies
from core.clock import utc_now
from core.crypto import decrypt
from monitors.checking import interactive
from monitors.models import Monitor
from monitors.services import FIRST_CLAIM
from monitors.tasks import first_check
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, state_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "PATIENCE_SEC", -0.5)


def test_create_answers_with_null_status_and_the_check_follows() -> None:
    made = Api.signed_in(UserFactory()).post("/v1/monitors", {"url": "http://127.0.0.1:9/", "timeout_ms": 1000})
    assert (made.status, made.json["status"], made.json["last_checked_at"]) == (201, None, None)
    due = state_of(Monitor.objects.get()).next_due_at
    assert due is not None
    assert due <= utc_now()


def test_a_test_run_answers_503() -> None:
    answer = Api.signed_in(UserFactory()).post("/v1/monitors/test", {"url": "http://127.0.0.1:9/", "timeout_ms": 1000})
    assert (answer.status, answer.json["error"]) == (503, "no_worker")


def test_a_draft_is_encrypted_in_its_message() -> None:
    flush_broker()
    draft = {
        "url": "http://127.0.0.1:9/of-a-draft",
        "timeout_ms": 1000,
        "request_headers": [{"name": "X-Key", "value": "hunter2"}],
    }
    Api.signed_in(UserFactory()).post("/v1/monitors/test", draft)
    with redis.Redis.from_url(settings.REDIS_URL or "") as broker:
        (message,) = broker.lrange("interactive", 0, -1)
    arguments = b64decode(json.loads(message)["body"])
    assert b"hunter2" not in arguments
    assert b"of-a-draft" not in arguments
    assert "hunter2" in decrypt(json.loads(arguments)[0][0])
    flush_broker()


def test_a_worker_that_made_no_check_says_so() -> None:
    """The claim is released at once, as after a timeout, rather than when its lease expires."""
    monitor, address = MonitorFactory(owner=UserFactory()), replies.new_address()
    first_check(monitor.pk, FIRST_CLAIM + 1, address)  # a claim that is not the monitor's
    assert replies.wait(address, bool, timeout_sec=5) is False
