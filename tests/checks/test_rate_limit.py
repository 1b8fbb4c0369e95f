"""At most one check per address and second: the order of those that wait, and what happens to a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import SECOND, LocalSeconds, RateLimiter
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, ReasonCode
from tests.checks.conftest import LOOPBACK
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.server import TargetServer

ECHO = Datagrams([[Reply()]])


class Claims:
    """Answers with the given waits, one for each claim; a further claim is granted."""

    def __init__(self, *waits: float) -> None:
        self._waits = list(waits)
        self.asked: SimpleQueue[str] = SimpleQueue()

    def __call__(self, addresses: Sequence[str]) -> list[float]:
        for address in addresses:
            self.asked.put(address)
        return [self._waits.pop(0) if self._waits else 0.0 for _ in addresses]


def test_checks_of_one_address_wait_and_others_do_not(targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO, host="0.0.0.0")
    hosts = ["127.40.0.1", "::ffff:127.40.0.1", "127.40.0.1", "127.40.0.2"]
    ended: list[int] = []
    began = time.monotonic()
    engine = ProbeEngine(LOOPBACK)
    engine.run(
        enumerate([UdpSpec(host=host, port=service.port) for host in hosts]),
        lambda number, outcome: ended.append(number if outcome.passed else -1),
    )
    assert time.monotonic() - began >= 2 * SECOND
    assert sorted(ended) == [0, 1, 2, 3]
    assert 3 in ended[:2]
    assert len(service.seen) == len(service.senders) == 4


def test_a_port_does_not_matter(targets: TargetServer) -> None:
    services = [targets.serve_datagrams(ECHO, host="127.40.1.1") for _ in range(2)]
    began = time.monotonic()
    engine = ProbeEngine(LOOPBACK)
    assert all(engine.check(UdpSpec(host="127.40.1.1", port=service.port)).passed for service in services)
    assert time.monotonic() - began >= SECOND


def test_a_check_waits_for_half_of_its_time_at_the_longest(targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO)
    engine = ProbeEngine(LOOPBACK)
    assert engine.check(UdpSpec(host="127.0.0.1", port=service.port)).passed
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, timeout_ms=1_100))
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert "one udp check a second" in (outcome.detail or "")
    assert len(service.seen) == 1


def test_a_check_with_less_patience_is_not_let_through_before_others() -> None:
    claims, now = Claims(0.1), time.monotonic()
    limiter = RateLimiter(claims)
    granted: SimpleQueue[str] = SimpleQueue()
    limiter.reserve("192.0.2.1", now + 60, lambda _: granted.put("patient"))
    limiter.reserve("192.0.2.1", now + 50, lambda _: granted.put("hurried"))
    assert granted.get(timeout=10) == "patient"
    assert granted.get(timeout=10) == "hurried"
    assert [claims.asked.get(timeout=10) for _ in range(3)] == ["192.0.2.1"] * 3


def test_nothing_is_claimed_for_checks_that_gave_up() -> None:
    claims = Claims()
    limiter = RateLimiter(claims)
    granted: SimpleQueue[float] = SimpleQueue()
    limiter.reserve("192.0.2.1", time.monotonic() - 1, granted.put)
    limiter.reserve("192.0.2.2", time.monotonic() + 60, granted.put)
    assert time.monotonic() < granted.get(timeout=10)
    assert claims.asked.get(timeout=10) == "192.0.2.2"
    with pytest.raises(Empty):
        granted.get_nowait()


def test_claims_go_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    answers = [None, [0.0]]

    def claim(addresses: Sequence[str]) -> list[float]:
        answer = answers.pop(0)
        if answer is None:
            raise LookupError(addresses)
        return answer

    granted: SimpleQueue[float] = SimpleQueue()
    RateLimiter(claim).reserve("192.0.2.1", time.monotonic() + 60, granted.put)
    assert granted.get(timeout=10)
    assert "could not be claimed" in caplog.text


def test_a_second_that_has_passed_is_not_used(targets: TargetServer) -> None:
    """The loop was busy, and meanwhile another process may have claimed the next second."""
    service, claims = targets.serve_datagrams(ECHO), Claims()
    engine = ProbeEngine(LOOPBACK, rate_limiter=RateLimiter(claims))
    passed: list[str] = []

    def take(key: str, outcome: CheckOutcome) -> None:
        if key == "blocked":
            claims.asked.get(timeout=10)
            time.sleep(SECOND + 0.1)  # keeps the loop busy
        elif outcome.passed:
            passed.append(key)

    specs = {"udp": UdpSpec(host="127.0.0.1", port=service.port), "blocked": UdpSpec(host="10.0.0.1", port=9)}
    engine.run(specs.items(), take)
    assert passed == ["udp"]
    assert claims.asked.get(timeout=10) == "127.0.0.1"
    assert len(service.seen) == 1


@pytest.mark.parametrize("spelled", ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2002:c000:201::1", "192.0.2.1"])
def test_spellings_of_an_address_share_its_seconds(spelled: str) -> None:
    claims = Claims()
    RateLimiter(claims).reserve(spelled, time.monotonic() + 60, lambda _: None)
    assert claims.asked.get(timeout=10) == "192.0.2.1"


def test_local_seconds_are_forgotten() -> None:
    claim = LocalSeconds(seconds=0.0)
    for number in range(30_000):
        claim([f"{number}"])
    assert len(claim._free_at) <= 10_001
