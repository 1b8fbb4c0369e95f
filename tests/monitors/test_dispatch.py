"""Dispatching due monitors while the broker or the database is unreachable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis
from django.db import DatabaseError, connection, connections, transaction
from kombu.exceptions import OperationalError
from pytest_django.fixtures import Settings
from redis.exceptions import RedisError

from checks.results.models import CheckResult
from core.clock import utc_now
from core.metrics import PROCESSES_KEY
from monitors import tasks
from monitors.models import Monitor
from monitors.scheduling import claim_due
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, record_ping, state_of
from tests.monitors.test_runner import end_whoever_waits, wait_until
from tests.processes.up import free_port
from tests.targets.server import TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _prober_of_ours() -> Iterator[None]:
    flush_broker()
    yield
    tasks.leave()
    flush_broker()


@pytest.fixture
def due() -> Monitor:
    """A monitor that has been checked once and is due again."""
    with TargetServer() as targets:
        url = targets.serve([answer()]).url()
    return MonitorFactory(owner=UserFactory(), url=url, created_at=utc_now() - timedelta(minutes=10), up=True)


def test_a_broker_out_of_reach_is_seen_before_anything_is_claimed(due: Monitor, settings: Settings) -> None:
    before = state_of(due)
    assert tasks.probe_batch.app.conf.broker_url  # Celery reads the setting once, before this test changes it
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    with pytest.raises(RedisError):
        tasks.dispatch_due()
    after = state_of(due)
    assert (after.claim, after.next_due_at) == (before.claim, before.next_due_at)


def test_as_many_batches_may_wait_as_the_living_workers_can_take(due: Monitor, settings: Settings) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.rpush(tasks.PROBES, *["waiting"] * (tasks.QUEUED_PER_WORKER * tasks.LEAST_WORKERS))
        tasks.dispatch_due()
        assert state_of(due).claimed_at is None
        now = utc_now().timestamp()
        broker.hset(PROCESSES_KEY, mapping={f"worker|{number}": now for number in range(tasks.LEAST_WORKERS + 1)})
        tasks.dispatch_due()
    assert state_of(due).claimed_at is not None


def test_missed_pings_are_noticed_while_no_worker_takes_checks(due: Monitor, settings: Settings) -> None:
    late = MonitorFactory(owner=UserFactory(), url="", type="heartbeat", interval_sec=60, grace_sec=10)
    assert record_ping(late.public_id, now=utc_now() - timedelta(minutes=5))
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.rpush(tasks.PROBES, *["waiting"] * (tasks.QUEUED_PER_WORKER * tasks.LEAST_WORKERS))
        tasks.dispatch_due()
    assert state_of(late).status == "down"
    assert state_of(due).claimed_at is None


def test_a_claim_that_cannot_be_sent_is_given_back(due: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker fails between reading the queue and sending the message."""

    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(tasks.probe_batch, "apply_async", refuse)
    slot = state_of(due).next_due_at
    with pytest.raises(OperationalError):
        tasks.dispatch_due()
    state = state_of(due)
    assert (state.claimed_at, state.next_due_at, state.claim) == (None, slot, 2)
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=9)] == [due.pk]


def test_checks_are_given_back_if_missed_pings_cannot_be_recorded(due: Monitor) -> None:
    late = MonitorFactory(owner=UserFactory(), url="", type="heartbeat", interval_sec=60, grace_sec=10)
    assert record_ping(late.public_id, now=utc_now() - timedelta(minutes=5))
    slot = state_of(due).next_due_at
    dispatcher = ThreadPoolExecutor(1)
    with dispatcher, transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE monitors_statuschange IN EXCLUSIVE MODE")
        tried = dispatcher.submit(tasks.dispatch_due)
        wait_until(lambda: end_whoever_waits(by="pg_cancel_backend"))
        assert isinstance(tried.exception(20), DatabaseError)
        dispatcher.submit(connections.close_all)
    assert (state_of(due).claimed_at, state_of(due).next_due_at) == (None, slot)


def test_a_type_of_a_newer_version_holds_up_no_other(due: Monitor) -> None:
    newer = MonitorFactory(owner=due.owner, created_at=utc_now() - timedelta(minutes=10), up=True)
    Monitor.objects.filter(pk=newer.pk).update(type="newer")
    tasks.dispatch_due()
    tasks.probe_batch([(monitor.pk, state_of(monitor).claim) for monitor in (newer, due)])
    wait_until(lambda: CheckResult.objects.filter(monitor_id=due.pk).exists())
    assert "its stored settings are no longer valid" in (state_of(newer).fault or "")


def test_a_batch_waits_for_a_database_that_went_away(due: Monitor) -> None:
    (claim,) = claim_due(utc_now(), limit=9)
    worker = threading.Thread(target=tasks.probe_batch, args=([(claim.monitor_id, claim.number)],))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE monitors_monitor IN ACCESS EXCLUSIVE MODE")
        worker.start()
        # Once it waits for our lock, terminate its session, as a restart of the server does.
        wait_until(end_whoever_waits)
    worker.join(20)
    wait_until(lambda: CheckResult.objects.filter(monitor_id=due.pk, claim=claim.number).exists())
