"""What an endpoint that waits for a worker answers when there is none (decision 18)."""

from __future__ import annotations

import pytest

from checks import mailbox
from core.clock import utc_now
from monitors import interactive
from monitors.models import Monitor
from monitors.services import FIRST_CLAIM
from monitors.tasks import first_check
from tests.api.client import Api
from tests.makers import make_monitor, make_user, state_of

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


def test_a_worker_that_made_no_check_says_so() -> None:
    """The claim is then released at once, as where nobody answered, and not only when its lease ends."""
    monitor, address = make_monitor(make_user()), mailbox.new_address()
    first_check(monitor.pk, FIRST_CLAIM + 1, address)  # a claim that is not the monitor's
    assert mailbox.wait(address, timeout_sec=5) is False
