"""At most one datagram per address and second: waiting checks, and unused seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import SECOND, Ask, LocalSeconds, RateLimiter, Turn, Waiting
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, ReasonCode
from core.egress import EgressGuard
from tests.checks.conftest import LOOPBACK
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.server import TargetServer

ECHO = Datagrams([[Reply()]])


class Claims:
    """Return these waits, one for each claim; further claims are granted."""

    def __init__(self, *waits: float | None) -> None:
        self._waits = list(waits)
        self.asked: SimpleQueue[str] = SimpleQueue()
        self.gone: SimpleQueue[str] = SimpleQueue()

    def __call__(self, asks: Sequence[Ask], gone: Sequence[Ask]) -> list[float | None]:
        for ask in gone:
            self.gone.put(ask.ticket)
        for ask in asks:
            self.asked.put(ask.address)
        return [self._waits.pop(0) if self._waits else 0.0 for _ in asks]


class Anywhere(EgressGuard):
    def permits(self, address: object) -> bool:
        return True


class Check:
    """A waiting check. `granted` gets the end of its second, `late` the time to return."""

    def __init__(
        self, limiter: RateLimiter, address: str = "192.0.2.1", *, patience: float = 60, **given: bool
    ) -> None:
        self.granted: SimpleQueue[float] = SimpleQueue()
        self.late: SimpleQueue[float] = SimpleQueue()
        self.ended = False
        ask = Ask(address, "1", str(id(self)), **given)
        limiter.reserve(Waiting(ask, time.monotonic() + patience, self, self._take))

    def _take(self, turn: Turn) -> None:
        if turn.ends is None:
            self.late.put(turn.comes_in)
        else:
            self.granted.put(turn.ends)


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


def test_the_wait_is_no_part_of_the_deadline(targets: TargetServer) -> None:
    """With a timeout of 0.5 s, the third of them waits for 2 s."""
    service = targets.serve_datagrams(ECHO)
    spec = UdpSpec(host="127.0.0.1", port=service.port, timeout_ms=500)
    found: list[CheckOutcome] = []
    ProbeEngine(LOOPBACK).run([(n, spec) for n in range(3)], lambda _, outcome: found.append(outcome))
    assert [outcome.passed for outcome in found] == [True] * 3
    assert all((outcome.latency_ms or 0) < 500 for outcome in found)


def test_a_check_whose_turn_is_not_soon_gives_up_its_place(targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO)
    engine = ProbeEngine(LOOPBACK, rate_limiter=RateLimiter(Claims(100.0)))
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port))
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert "one datagram a second" in (outcome.detail or "")
    assert outcome.postponed == 100.0
    assert service.seen == []


def test_a_place_is_kept_by_those_that_return() -> None:
    claims = Claims(100.0, 100.0)
    limiter = RateLimiter(claims)
    returning = Check(limiter, patience=3, returns=True)
    assert returning.late.get(timeout=10) == 100.0
    leaving = Check(limiter, patience=3)
    assert leaving.late.get(timeout=10) == 100.0
    assert claims.gone.get(timeout=10) == str(id(leaving))
    with pytest.raises(Empty):
        claims.gone.get_nowait()


def test_a_check_waits_until_its_time_to_ask_again() -> None:
    claims = Claims(0.05, 0.05)
    check = Check(RateLimiter(claims))
    assert check.granted.get(timeout=10) > time.monotonic()
    assert [claims.asked.get(timeout=10) for _ in range(3)] == ["192.0.2.1"] * 3


def test_nothing_is_claimed_for_checks_that_are_over() -> None:
    claims = Claims(0.3)
    limiter = RateLimiter(claims)
    over = Check(limiter)
    assert claims.asked.get(timeout=10) == "192.0.2.1"
    over.ended = True
    assert claims.gone.get(timeout=10) == str(id(over))
    assert Check(limiter, "192.0.2.2").granted.get(timeout=10)
    assert claims.asked.get(timeout=10) == "192.0.2.2"
    assert over.granted.empty()


def test_claims_go_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[list[float | None] | None] = [None, [0.0]]

    def claim(asks: Sequence[Ask], gone: Sequence[Ask]) -> list[float | None]:
        answer = answers.pop(0)
        if answer is None:
            raise LookupError(asks)
        return answer

    assert Check(RateLimiter(claim)).granted.get(timeout=10)
    assert "could not be claimed" in caplog.text


def test_without_a_broker_checks_come_back_at_different_times() -> None:
    limiter = RateLimiter(Claims(*[None] * 100))
    checks = [Check(limiter, patience=0.1) for _ in range(20)]
    assert len({check.late.get(timeout=10) for check in checks}) == 20


def test_a_second_that_has_passed_is_not_used(targets: TargetServer) -> None:
    """While the loop was busy, another process may have claimed the next second."""
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
    claims = Claims(100.0)  # nothing is sent
    spec = UdpSpec(host=spelled, port=9, timeout_ms=100)
    ProbeEngine(Anywhere(), rate_limiter=RateLimiter(claims)).check(spec)
    assert claims.asked.get(timeout=10) == "192.0.2.1"


def test_local_seconds_are_forgotten() -> None:
    claim = LocalSeconds(seconds=0.0)
    for number in range(30_000):
        claim([Ask(f"{number}")], [])
    assert len(claim._free_at) <= 10_001
    assert not claim._queues


def test_local_seconds_are_first_come_first_served() -> None:
    claim = LocalSeconds(seconds=60.0)
    first, second, third, again = (
        Ask("a", ticket=ticket, repeats=ticket == "again") for ticket in ["1", "2", "3", "again"]
    )
    assert claim([first], []) == [0.0]
    waits = [wait for wait in claim([second, third, again, second], []) if wait is not None]
    assert [round(wait / 60) for wait in waits] == [1, 2, 1, 2]
    claim._free_at.clear()
    assert [wait == 0 for wait in claim([third, again], [second])] == [False, True]
    assert [wait == 0 for wait in claim([third], [])] == [False]
    claim._free_at.clear()
    assert claim([third], []) == [0.0]
