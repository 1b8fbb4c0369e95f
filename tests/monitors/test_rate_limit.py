"""Sharing the seconds of target addresses between processes, with the real broker."""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path
from queue import SimpleQueue

import pytest
import redis
from django.conf import settings

from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import Ask, RateLimiter
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core import metrics
from core.clock import utc_now
from monitors.checking.jobs import load_jobs
from monitors.checking.rate_limit import SharedSeconds
from monitors.checking.runner import CheckRunner, shared_engine
from monitors.scheduling import claim_due
from tests.checks.conftest import LOOPBACK
from tests.factories import MonitorFactory
from tests.helpers import flush_broker, state_of
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.server import TargetServer

ROOT = Path(__file__).resolve().parents[2]
ECHO = Datagrams([[Reply()]])
# Two checks at once, in a separate process.
PROCESS = """
import sys
from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import RateLimiter
from checks.probes.udp import UdpSpec
from core.egress import EgressGuard, parse_networks
from monitors.checking.rate_limit import SharedSeconds

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


def ask(address: str = "192.0.2.1", owner: str = "1", ticket: str = "1", **given: bool) -> Ask:
    return Ask(address, owner, ticket, **given)


def test_a_second_is_claimed_once(url: str) -> None:
    ours, theirs = SharedSeconds(url), SharedSeconds(url)
    assert ours([ask("192.0.2.1"), ask("192.0.2.2"), ask("192.0.2.1")], [])[:2] == [0.0, 0.0]
    taken, free = theirs([ask("192.0.2.1", ticket="2"), ask("192.0.2.3")], [])
    assert taken is not None
    assert 0 < taken <= 2  # after its second, and that of the check before it
    assert free == 0.0


def test_of_many_at_once_one_claims_it(url: str) -> None:
    claims = [SharedSeconds(url) for _ in range(8)]
    with ThreadPoolExecutor(len(claims)) as pool:
        waits = list(pool.map(lambda n: claims[n]([ask(ticket=str(n))], [])[0], range(8)))
    assert waits.count(0.0) == 1
    assert len(set(waits)) == 8


def test_checks_are_late_if_many_accounts_wait_and_not_if_one_has_many(url: str) -> None:
    def late() -> float:
        metrics.report()
        return metrics.LATE.read(metrics.read_levels())["checks",]

    claim, before = SharedSeconds(url), late()
    claim([ask(owner="one", ticket=str(number)) for number in range(20)], [])
    assert late() == before
    claim([ask(address="192.0.2.2", owner=str(number), ticket=str(number)) for number in range(20)], [])
    assert late() == before + 1


def test_what_is_claimed_expires(url: str) -> None:
    claim = SharedSeconds(url)
    for number in range(3):
        claim([ask(owner=str(number), ticket=str(number))], [])
    with redis.Redis.from_url(url) as broker:
        left = {key.decode(): broker.pttl(key) for key in broker.scan_iter()}
    assert set(left) == {f"probe-second:192.0.2.1{part}" for part in ("", ":tags", ":back", ":owners")}
    assert 0 < left.pop("probe-second:192.0.2.1") <= 1_000
    assert all(60_000 < ends < 70_000 for ends in left.values())


class Crowd:
    """Monitors of one address that retry at the assigned time. A simulated second takes 20 ms.

    `sent`: the owner of each datagram, in order.
    """

    SECOND = 0.02

    def __init__(self, url: str) -> None:
        self._claim = SharedSeconds(url, second=self.SECOND)
        self._due: list[tuple[float, int, Ask]] = []
        self._number = count()
        self.sent: list[str] = []

    def add(self, owner: str, monitors: int = 1) -> None:
        for number in range(monitors):
            self._push(ask(owner=owner, ticket=f"{owner}/{number}"), at=0.0)

    def _push(self, one: Ask, *, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._number), one))

    def run(self, *, until_sent: int) -> None:
        while len(self.sent) < until_sent:
            at, _, one = heapq.heappop(self._due)
            time.sleep(max(0.0, at - time.monotonic()))
            (wait,) = self._claim([one], [])
            assert wait is not None
            if not wait:
                self.sent.append(one.owner)
            self._push(one, at=time.monotonic() + wait)


def test_accounts_take_turns_regardless_of_their_size(url: str) -> None:
    crowd = Crowd(url)
    crowd.add("hostile", 150)
    crowd.run(until_sent=5)
    crowd.add("quiet")
    crowd.run(until_sent=65)
    turns = [number for number, owner in enumerate(crowd.sent) if owner == "quiet"]
    assert turns[0] <= 7
    # Nearly every other second: another check may return at the same moment and be slightly earlier.
    assert len(turns) >= 24
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 4


def test_each_of_many_accounts_gets_its_part(url: str) -> None:
    crowd = Crowd(url)
    for number in range(40):
        crowd.add(f"hostile {number}", 3)
    crowd.run(until_sent=10)
    crowd.add("quiet")
    crowd.run(until_sent=190)
    turns = [number for number, owner in enumerate(crowd.sent) if owner == "quiet"]
    assert turns[0] <= 10 + 45
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 45
    counts = Counter(crowd.sent)
    assert min(counts.values()) >= 3
    assert max(counts.values()) <= 6


def test_a_check_that_has_begun_goes_first(url: str) -> None:
    claim = SharedSeconds(url)
    claim([ask()], [])
    for number in range(2, 9):
        claim([ask(owner=str(number), ticket=str(number))], [])
    (wait,) = claim([ask(repeats=True)], [])
    assert wait is not None
    assert wait <= 1  # right after this second
    (other,) = claim([ask(owner="9", ticket="9")], [])
    assert other is not None
    assert other > 8


def test_a_place_that_is_left_is_no_ones(url: str) -> None:
    claim = SharedSeconds(url)
    claim([ask()], [])
    for number in range(2, 9):
        claim([ask(owner=str(number), ticket=str(number))], [])
    (wait,) = claim([ask(ticket="8", owner="8")], [ask(ticket=str(number)) for number in range(2, 8)])
    assert wait is not None
    assert wait <= 1


def test_a_check_that_never_comes_back_costs_no_second(url: str) -> None:
    """It gets a moment, and then the next one is sent."""
    claim = SharedSeconds(url, second=0.05)
    claim([ask()], [])
    claim([ask(owner="gone", ticket="gone")], [])
    until(lambda: claim([ask(owner="2", ticket="2")], []) == [0.0], 10, "its turn")


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
    assert caplog.text.count("checks by UDP wait for the broker") == 1


@pytest.mark.django_db(transaction=True)
def test_a_check_without_a_second_is_made_later(url: str, targets: TargetServer) -> None:
    """The result says nothing about the target, so it is not recorded, and the monitor is due again later."""
    service = targets.serve_datagrams(ECHO, host="127.42.0.1")
    created = utc_now() - timedelta(minutes=10)
    monitor = MonitorFactory(
        type="udp", url=f"udp://127.42.0.1:{service.port}", timeout_ms=1_000, created_at=created, up=True
    )
    shared_engine.cache_clear()
    runner = CheckRunner(shared_engine())
    try:
        with redis.Redis.from_url(url) as broker:
            broker.set("probe-second:127.42.0.1", 1, px=60_000)  # another process, again and again
            outcomes: SimpleQueue[CheckOutcome | None] = SimpleQueue()
            runner.submit(load_jobs([claim.key for claim in claim_due(utc_now(), limit=1)]), then=outcomes.put)
            assert outcomes.get(timeout=20) is None
            assert service.seen == []
            state, now = state_of(monitor), utc_now()
            assert state.claimed_at is None
            assert state.next_due_at is not None
            assert now < state.next_due_at < now + timedelta(seconds=60)  # when that second ends
            broker.delete("probe-second:127.42.0.1")
        (claim,) = claim_due(now + timedelta(seconds=60), limit=1)
        assert not claim.again
        assert state_of(monitor).slot_at == state.next_due_at
        runner.submit(load_jobs([claim.key]), then=outcomes.put)
        outcome = outcomes.get(timeout=20)
        assert outcome is not None
        assert outcome.verdict is Verdict.UP
    finally:
        runner.drain(grace_sec=0)
        shared_engine.cache_clear()
