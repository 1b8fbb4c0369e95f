"""Messages expire by the broker's clock, not by those of the machines. Beat continues after its clock was set."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from celery.worker import state
from django.conf import settings
from redis import Redis

from config.beat import app as beat
from config.celery import app
from config.message_clock import Request
from core import metrics
from core.clock import BROKER
from tests.helpers import flush_broker

WRONG = [-172_800, -600, 600, 172_800]


@pytest.fixture(autouse=True)
def _known_time() -> None:
    flush_broker()
    metrics.mark_alive(("web",))
    metrics.report()
    assert BROKER.machine_ahead() is not None


def sent(seconds: float) -> dict[str, Any]:
    """Send a message that expires after this time. Return its headers as stored in the broker."""
    app.send_task("monitors.tasks.dispatch_due", expires=seconds)
    headers: dict[str, Any] = json.loads(Redis.from_url(settings.REDIS_URL or "").lpop("dispatch"))["headers"]  # type: ignore[arg-type]
    return headers


@pytest.mark.parametrize("ahead", WRONG)
def test_a_sender_whose_clock_is_wrong(ahead: int) -> None:
    now = time.time()
    with time_machine.travel(now + ahead):
        expires = datetime.fromisoformat(sent(5)["expires"]).timestamp()
    assert now + 4 < expires < time.time() + 6


@pytest.mark.parametrize("ahead", WRONG)
def test_a_worker_whose_clock_is_wrong(ahead: int) -> None:
    fresh, old = sent(60), sent(0)
    app.loader.import_default_modules()
    task = app.tasks["monitors.tasks.dispatch_due"]
    with time_machine.travel(time.time() + ahead):
        assert not _request(fresh, task).revoked()
        assert _request(old, task).revoked()
    assert old["id"] in state.revoked


def _request(headers: dict[str, Any], task: Any) -> Request:
    class Message:
        delivery_info: dict[str, Any] = {}  # noqa: RUF012
        properties: dict[str, Any] = {}  # noqa: RUF012
        body: tuple[tuple[()], dict[str, Any], dict[str, Any]] = ((), {}, {})

    message: Any = Message()
    message.headers = headers
    return Request(message, headers=headers, decoded=True, task=task, app=app, hostname="here")


def test_tasks_of_workers_make_such_requests() -> None:
    app.loader.import_default_modules()
    assert {task.Request for task in app.tasks.values()} == {"config.message_clock:Request"}


def test_the_clock_of_beat_is_never_set() -> None:
    before = beat.now()
    with time_machine.travel(datetime.now(UTC) - timedelta(days=2)):
        assert timedelta() <= beat.now() - before < timedelta(seconds=5)
        for entry in beat.conf.beat_schedule.values():
            assert entry["options"]["expires"] > 0
