"""What an attacker with write access to the broker can make Pulsekeeper's processes do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from celery.contrib.testing.worker import start_worker
from django.conf import settings as django_settings
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.services import create_account
from config.celery import app
from core import metrics as counted
from core import replies
from core.cache import load, store
from core.clock import utc_now
from monitors.checking.results import CheckResult
from monitors.scheduling import tick
from projects.access import Caller
from statuspages import caching
from statuspages.badges import create_badge
from statuspages.caching import PublishedPage
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import PASSWORD, flush_broker
from tests.statuspages.making import look, make_page

PICKLES = "application/x-python-serialize"


class Payload:
    """Create a file in the process that unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Return the file that a payload creates when it runs."""
    return tmp_path / "code-ran"


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(str(django_settings.REDIS_URL)) as broker:
        flush_broker()
        yield broker
        flush_broker()
        caching.clear_local_caches()


def poison(broker: redis.Redis, value: bytes) -> None:
    """Replace the value of every key."""
    for key in broker.keys("*"):
        match broker.type(key):
            case b"string":
                broker.set(key, value)
            case b"hash":
                broker.hset(key, mapping=dict.fromkeys([*broker.hkeys(key), b"x", b"a|b|\xff"], value))
            case kind:
                raise AssertionError(f"{key!r} is a {kind!r}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "garbage",
    [None, b"", b"nan", b'"\xff', b"[" * 100_000, b'{"page_id": 1}', b"9" * 5_000],
    ids=["pickle", "nothing", "no number", "no text", "nested", "no signature", "large number"],
)
def test_pages_answer_and_run_nothing_from_the_broker(
    garbage: bytes | None, broker: redis.Redis, marker: Path, settings: Settings, fresh_health: None
) -> None:
    settings.THROTTLE_SCALE = 1
    tick(utc_now())
    owner = UserFactory()
    monitor = MonitorFactory(owner=owner)
    page, badge = make_page(owner, [monitor]), create_badge(Caller(owner), monitor.public_id, now=utc_now())
    staff = Client()
    staff.force_login(
        create_account(email="staff@example.com", password=PASSWORD, plan="pro", is_staff=True, is_superuser=True)
    )
    public_paths = [f"/status/{page.slug}{part}" for part in ("", ".json", ".atom")]
    public_paths += [f"/badge/{badge.key}/status.svg", "/metrics", "/readyz", "/v1/monitors"]

    def statuses() -> dict[str, int]:
        counted.report()
        found = {path: look(path).status_code for path in public_paths}
        return found | {"/system": staff.get("/system").status_code}

    before = statuses()
    assert set(before.values()) == {200, 401}, before
    poison(broker, pickle.dumps(Payload(marker)) if garbage is None else garbage)
    assert statuses() == before
    assert not marker.exists()


def test_a_malformed_answer_of_a_worker_counts_as_none(broker: redis.Redis, marker: Path) -> None:
    for forged in (pickle.dumps(Payload(marker)), b"{}", b'{"status": "fine"}', b"[" * 100_000, b"\xff"):
        broker.rpush("reply:x", forged)
        assert replies.wait("reply:x", CheckResult, timeout_sec=5) is None
    assert not marker.exists()


def test_an_entry_that_was_not_stored_under_its_key_is_absent(broker: redis.Redis, settings: Settings) -> None:
    place = PublishedPage(1, 1, 1, "x", "http://testserver", "/status/shop", "/status/shop", "/shop.json", "/shop.atom")
    store("status-page-at:shop", place, seconds=60)
    assert load("status-page-at:shop", PublishedPage, seconds=60) == place
    (key,) = cast("list[bytes]", broker.keys("*status-page-at:shop"))
    signed = cast("bytes", broker.get(key))

    forged = signed.replace(rb"\"lock\":\"x\"", rb"\"lock\":\"\"")
    assert forged != signed
    broker.set(key, forged)
    assert load("status-page-at:shop", PublishedPage, seconds=60) is None, "without its password"
    broker.set(key.replace(b"shop", b"cafe"), signed)
    assert load("status-page-at:cafe", PublishedPage, seconds=60) is None, "that of another page"
    broker.set(key, signed)
    assert load("status-page-at:shop", PublishedPage, seconds=-1) is None, "kept for longer than it may be"
    settings.SECRET_KEY = "of another deployment"
    assert load("status-page-at:shop", PublishedPage, seconds=60) is None


def test_workers_take_json_alone_and_answer_few_commands(
    broker: redis.Redis, marker: Path, transactional_db: None
) -> None:
    bomb = pickle.dumps(Payload(marker))
    pickled: dict[str, Any] = {"content_type": PICKLES, "content_encoding": "binary"}
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=["dispatch"]):
        assert app.control.ping(timeout=30, limit=1), "it listens"
        with app.connection_for_write() as connection, connection.Producer() as producer:
            producer.publish(bomb, routing_key="dispatch", headers={"task": "audit.tasks.sweep", "id": "1"}, **pickled)
            producer.publish(bomb, exchange="celery.pidbox", **pickled)
        # Queued after the messages above. A worker that executed them would not answer the pings.
        for command in ("shutdown", "pool_shrink", "conf", "revoke", "active_queues"):
            answers = app.control.broadcast(command, {"task_id": "1"}, reply=True, timeout=30, limit=1)
            assert [list(answer) for reply in answers or [] for answer in reply.values()] == [["error"]], command
        assert app.control.ping(timeout=30, limit=1)
    assert broker.llen("dispatch") == 0
    assert not marker.exists()
