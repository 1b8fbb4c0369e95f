"""What an endpoint that waits for a worker answers when there is none (decision 18)."""

from __future__ import annotations

import pytest

from core.clock import utc_now
from monitors import interactive
from monitors.models import Monitor
from tests.api.client import Api
from tests.makers import make_user, state_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "PATIENCE_SEC", -0.5)


def test_create_answers_with_null_status_and_the_check_follows() -> None:
    made = Api.signed_in(make_user()).post("/v1/monitors", {"url": "http://127.0.0.1:9/", "timeout_ms": 1000})
    assert (made.status, made.json["status"], made.json["last_checked_at"]) == (201, None, None)
    due = state_of(Monitor.objects.get()).next_due_at
    assert due is not None
    assert due <= utc_now()


def test_a_test_run_answers_503() -> None:
    answer = Api.signed_in(make_user()).post(
        "/v1/monitors/test", {"url": "http://127.0.0.1:9/", "timeout_ms": 1000}
    )
    assert (answer.status, answer.json["error"]) == (503, "no_worker")
