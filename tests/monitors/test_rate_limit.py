"""Seconds of target addresses over several processes, by the real broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue

import pytest
import redis
from django.conf import settings

from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import RateLimiter
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.clock import utc_now
from monitors.probing.jobs import load_jobs
from monitors.probing.prober import Prober, probe_engine
from monitors.probing.rate_limit import SharedSeconds
from monitors.scheduling import POSTPONED_SEC, claim_due
from tests.checks.conftest import LOOPBACK
from tests.factories import MonitorFactory
from tests.helpers import flush_broker, state_of
from tests.processes.up import free_port
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.server import TargetServer

ROOT = Path(__file__).resolve().parents[2]
ECHO = Datagrams([[Reply()]])
# Two checks at once, in a process of its own.
PROCESS = """
import sys
from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import RateLimiter
from checks.probes.udp import UdpSpec
from core.egress import EgressGuard, parse_networks
from monitors.probing.rate_limit import SharedSeconds

engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.0/8")), rate_limiter=RateLimiter(SharedSeconds(sys.argv[1])))
spec = UdpSpec(host="127.0.0.1", port=int(sys.argv[2]), timeout_ms=60_000, slow_ms=60_000)
engine.run([(1, spec), (2, spec)], lambda _, outcome: print(outcome.verdict))
"""


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def url() -> str:
    flush_broker()
    assert settings.REDIS_URL is not None
    return settings.REDIS_URL


def engine(url: str) -> ProbeEngine:
    return ProbeEngine(LOOPBACK, rate_limiter=RateLimiter(SharedSeconds(url)))


def test_a_second_is_claimed_once(url: str) -> None:
    ours, theirs = SharedSeconds(url), SharedSeconds(url)
    assert ours(["192.0.2.1", "192.0.2.2", "192.0.2.1"])[:2] == [0.0, 0.0]
    taken, free = theirs(["192.0.2.1", "192.0.2.3"])
    assert 0 < taken <= 1
    assert free == 0.0


def test_of_many_at_once_one_claims_it(url: str) -> None:
    claims = [SharedSeconds(url) for _ in range(8)]
    with ThreadPoolExecutor(len(claims)) as pool:
        waits = [waits[0] for waits in pool.map(lambda claim: claim(["192.0.2.1"]), claims)]
    assert waits.count(0.0) == 1


def test_what_is_claimed_expires(url: str) -> None:
    SharedSeconds(url)(["192.0.2.1"])
    with redis.Redis.from_url(url) as broker:
        (key,) = broker.keys()
        assert 0 < broker.pttl(key) <= 1_000


def test_two_processes_share_the_seconds_of_an_address(url: str, targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO)
    command = [sys.executable, "-c", PROCESS, url, str(service.port)]
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert printed == [b"up\nup\n"] * 2
    assert time.monotonic() - began >= 3  # four seconds were claimed
    assert len(service.senders) == 4


def test_two_engines_share_the_seconds_of_an_address(url: str, targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO, host="127.41.0.1")
    spec = UdpSpec(host="127.41.0.1", port=service.port)
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda each: each.check(spec), [engine(url), engine(url)]))
    assert [outcome.passed for outcome in outcomes] == [True, True]
    assert time.monotonic() - began >= 1
    assert len(service.seen) == 2


def test_without_a_broker_nothing_is_sent(targets: TargetServer, caplog: pytest.LogCaptureFixture) -> None:
    service = targets.serve_datagrams(ECHO)
    away = engine(f"redis://127.0.0.1:{free_port()}/0")
    outcome = away.check(UdpSpec(host="127.0.0.1", port=service.port, timeout_ms=1_000))
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert service.seen == []
    assert caplog.text.count("udp checks wait for the broker") == 1


@pytest.mark.django_db(transaction=True)
def test_a_check_without_a_second_is_made_later(url: str, targets: TargetServer) -> None:
    """It says nothing about the target, so nothing is recorded, and the monitor is due again at another time."""
    service = targets.serve_datagrams(ECHO, host="127.42.0.1")
    created = utc_now() - timedelta(minutes=10)
    monitor = MonitorFactory(
        type="udp", url=f"udp://127.42.0.1:{service.port}", timeout_ms=1_000, created_at=created, up=True
    )
    probe_engine.cache_clear()
    prober = Prober(probe_engine())
    try:
        with redis.Redis.from_url(url) as broker:
            broker.set("probe-second:127.42.0.1", 1, px=60_000)  # another process, again and again
            outcomes: SimpleQueue[CheckOutcome | None] = SimpleQueue()
            prober.submit(load_jobs([claim.key for claim in claim_due(utc_now(), limit=1)]), then=outcomes.put)
            assert outcomes.get(timeout=20) is None
            assert service.seen == []
            state, now = state_of(monitor), utc_now()
            assert state.claimed_at is None
            assert state.next_due_at is not None
            assert now - timedelta(seconds=30) < state.next_due_at < now + timedelta(seconds=POSTPONED_SEC)
            broker.delete("probe-second:127.42.0.1")
        (claim,) = claim_due(now + timedelta(seconds=POSTPONED_SEC), limit=1)
        assert not claim.again
        assert state_of(monitor).slot_at == state.next_due_at
        prober.submit(load_jobs([claim.key]), then=outcomes.put)
        outcome = outcomes.get(timeout=20)
        assert outcome is not None
        assert outcome.verdict is Verdict.UP
    finally:
        prober.drain(grace_sec=0)
        probe_engine.cache_clear()
