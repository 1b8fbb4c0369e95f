"""Datagrams of several accounts to one address, through a real runner, the broker and the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from django.conf import settings

from checks.results.models import CheckResult
from core.clock import utc_now
from monitors.checking.jobs import load_jobs
from monitors.checking.runner import CheckRunner, shared_engine
from monitors.models import Monitor, MonitorState
from monitors.scheduling import claim_due
from monitors.selectors import status_of
from monitors.stale import stale_since
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, state_of
from tests.processes.waiting import until
from tests.targets.catalogue.resolvers import NAME, A, mute
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.resolvers import Resolving, saying
from tests.targets.server import TargetServer

pytestmark = pytest.mark.django_db(transaction=True)

ECHO = Datagrams([[Reply()]])
HOSTILE = 150
PATIENCE_SEC = 30


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def runner() -> Iterator[CheckRunner]:
    flush_broker()
    shared_engine.cache_clear()
    made = CheckRunner(shared_engine())
    yield made
    made.drain(grace_sec=0)
    shared_engine.cache_clear()


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    assert settings.REDIS_URL is not None
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


def add(owner: object, url: str, **given: object) -> Monitor:
    given = {"timeout_ms": 10_000, "interval_sec": 60} | given
    return MonitorFactory(owner=owner, url=url, created_at=utc_now() - timedelta(minutes=10), up=True, **given)


def submit_due(runner: CheckRunner) -> int:
    claims = claim_due(utc_now(), limit=1_000)
    runner.submit(load_jobs([claim.key for claim in claims]))
    return len(claims)


def test_many_monitors_of_one_account_leave_another_its_turn(runner: CheckRunner, targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO, host="127.43.0.1")
    url, hostile = f"udp://127.43.0.1:{service.port}", UserFactory()
    for _ in range(HOSTILE):
        add(hostile, url, type="udp", request_body="hostile")
    assert submit_due(runner) == HOSTILE
    until(lambda: service.seen, PATIENCE_SEC, "the first is checked")
    quiet = add(UserFactory(), url, type="udp", request_body="quiet")
    submit_due(runner)
    until(lambda: b"quiet" in [data for *_, data in service.seen], PATIENCE_SEC, "a turn")
    before = [data for *_, data in service.seen].index(b"quiet")
    assert before <= 3
    until(lambda: CheckResult.objects.filter(monitor_id=quiet.pk).exclude(claim=1).exists(), PATIENCE_SEC, "a result")
    # The others released their places; each returns at its turn, or after its interval of 60 s.
    until(lambda: runner.in_flight <= 5, PATIENCE_SEC, "places")
    due = MonitorState.objects.filter(monitor__owner=hostile, claimed_at=None, fault__isnull=False)
    assert len(set(due.values_list("next_due_at", flat=True))) >= 50


def test_a_named_resolver_is_asked_in_its_seconds_only(
    runner: CheckRunner, targets: TargetServer, broker: redis.Redis
) -> None:
    server = targets.serve_resolver(saying(A), host="127.43.0.2")
    monitor = add(UserFactory(), f"dns://[::ffff:127.43.0.2]:{server.port}/{NAME}", type="dns")
    broker.set("probe-second:127.43.0.2", 1, px=3_600_000)  # others, again and again
    submit_due(runner)
    until(lambda: state_of(monitor).claimed_at is None, PATIENCE_SEC, "it is postponed")
    assert server.asked == []
    state = state_of(monitor)
    assert state.next_due_at is not None
    assert state.next_due_at - utc_now() < timedelta(seconds=60)
    assert "one datagram a second" in (state.fault or "")


def test_queries_that_are_repeated_wait_for_their_seconds(
    runner: CheckRunner, targets: TargetServer, broker: redis.Redis
) -> None:
    server = targets.serve_resolver(Resolving(mute), host="127.43.0.3")
    service = targets.serve_datagrams(Datagrams([()]), host="127.43.0.4")
    owner = UserFactory()
    add(owner, f"dns://127.43.0.3:{server.port}/{NAME}", type="dns", timeout_ms=3_000)
    add(owner, f"udp://127.43.0.4:{service.port}", type="udp", timeout_ms=3_000)
    submit_due(runner)
    until(lambda: server.asked and service.seen, PATIENCE_SEC, "both are sent once")
    broker.set("probe-second:127.43.0.3", 1, px=3_600_000)
    broker.set("probe-second:127.43.0.4", 1, px=3_600_000)
    results = CheckResult.objects.exclude(claim=1)
    until(lambda: results.count() == 2, PATIENCE_SEC, "both time out")
    assert {result.reason_code for result in results} == {"timeout"}
    assert (len(server.asked), len(service.seen)) == (1, 1)


def test_the_wait_is_no_latency(runner: CheckRunner, targets: TargetServer, broker: redis.Redis) -> None:
    server = targets.serve_resolver(saying(A), host="127.43.0.5")
    service = targets.serve_datagrams(ECHO, host="127.43.0.6")
    owner = UserFactory()
    add(owner, f"dns://127.43.0.5:{server.port}/{NAME}", type="dns", timeout_ms=1_000)
    add(owner, f"udp://127.43.0.6:{service.port}", type="udp", timeout_ms=1_000)
    broker.set("probe-second:127.43.0.5", 1, px=2_000)
    broker.set("probe-second:127.43.0.6", 1, px=2_000)
    began = time.monotonic()
    submit_due(runner)
    results = CheckResult.objects.exclude(claim=1)
    until(lambda: results.count() == 2, PATIENCE_SEC, "both are checked")
    assert time.monotonic() - began > 1.9
    assert {result.verdict for result in results} == {"up"}
    assert all((result.latency_ms or 0) < 1_000 for result in results)


def test_a_monitor_without_a_turn_for_two_intervals_is_unknown(runner: CheckRunner, broker: redis.Redis) -> None:
    monitor = add(UserFactory(), "udp://127.43.0.7:9", type="udp")
    broker.set("probe-second:127.43.0.7", 1, px=3_600_000)
    submit_due(runner)
    until(lambda: state_of(monitor).claimed_at is None, PATIENCE_SEC, "it is postponed")
    monitor = Monitor.objects.select_related("state").get(pk=monitor.pk)
    late = utc_now() + timedelta(seconds=150)
    assert stale_since(monitor, now=late) is not None
    assert status_of(monitor, now=late) is None
