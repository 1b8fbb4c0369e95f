"""Places for requests that wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import pytest

from core import metrics, waiting
from core.errors import NoWorker, TooManyRequests
from core.shares import RecentUse
from core.waiting import (
    MAX_ACTIVE,
    MAX_IN_PROCESS,
    MAX_PRESENT,
    MAX_QUEUED,
    RESERVED,
    WAITING_REQUESTS,
    interruptible,
    limit_waiting,
)
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 30


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", PATIENCE_SEC)


@pytest.mark.usefixtures("impatient")
def test_an_account_holds_few_places_and_others_are_let_in() -> None:
    with ExitStack() as held:
        for _ in range(MAX_ACTIVE):
            held.enter_context(limit_waiting("attacker"))
        with pytest.raises(TooManyRequests) as refused, limit_waiting("attacker"):
            pass
        assert refused.value.wait
        with limit_waiting("neighbour"):
            pass
    with limit_waiting("attacker"):
        pass
    assert not waiting._active
    assert not waiting._present


@pytest.mark.usefixtures("impatient")
def test_all_accounts_together_hold_fewer_places_than_there_are_threads() -> None:
    with ExitStack() as held:
        for number in range(MAX_IN_PROCESS):
            held.enter_context(limit_waiting(f"account {number}"))
        with pytest.raises(TooManyRequests), limit_waiting("one more"):
            pass


def present() -> float:
    metrics.report()
    return WAITING_REQUESTS.read(metrics.read_levels())[()]


@pytest.mark.usefixtures("patient")
def test_a_burst_waits_for_its_turn_and_what_is_beyond_it_is_refused() -> None:
    go, running = threading.Event(), []

    def wait() -> str:
        with limit_waiting("account"):
            running.append("account")
            assert go.wait(PATIENCE_SEC)
            return "served"

    with ThreadPoolExecutor(MAX_PRESENT) as pool:
        served = [pool.submit(wait) for _ in range(MAX_PRESENT)]
        try:
            until(lambda: present() == MAX_PRESENT, PATIENCE_SEC, "the burst is there")
            until(lambda: len(running) == MAX_ACTIVE, PATIENCE_SEC, "some have their turn")
            with pytest.raises(TooManyRequests), limit_waiting("account"):
                pass
            assert len(running) == MAX_ACTIVE
        finally:
            go.set()
        assert {one.result(PATIENCE_SEC) for one in served} == {"served"}


@pytest.mark.usefixtures("impatient")
def test_a_block_may_run_once_for_each_account() -> None:
    with ExitStack() as held:
        for account in ("attacker", "neighbour"):
            held.enter_context(limit_waiting(account, most=1))
        with pytest.raises(TooManyRequests), limit_waiting("attacker", most=1):
            pass


@pytest.mark.usefixtures("impatient")
def test_an_error_gives_the_place_back() -> None:
    for _ in range(2 * MAX_ACTIVE):
        with pytest.raises(ValueError, match="broke"), limit_waiting("account"):
            raise ValueError("broke")
    assert not waiting._present


def fill(held: ExitStack, accounts: int, each: int) -> int:
    """Take places for many accounts in turns, until none is left. Return their number."""
    taken = 0
    for number in range(accounts * each):
        try:
            held.enter_context(limit_waiting(f"hostile {number % accounts}"))
        except TooManyRequests:
            continue
        taken += 1
    return taken


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("each", [MAX_ACTIVE, MAX_PRESENT])
def test_accounts_with_many_places_leave_the_last_ones_for_those_without(each: int) -> None:
    with ExitStack() as held:
        assert fill(held, MAX_IN_PROCESS // MAX_ACTIVE, each) == MAX_IN_PROCESS - RESERVED
        for number in range(RESERVED):
            held.enter_context(limit_waiting(f"neighbour {number}"))


class Waiters:
    """Requests in separate threads, each of which waits until it is released or interrupted."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.results: dict[str, str] = {}
        self.go = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, account: str, *, yields: bool = True) -> None:
        self._threads.append(threading.Thread(target=self._run, args=(account, yields)))
        self._threads[-1].start()

    def _run(self, account: str, yields: bool) -> None:
        interrupted = threading.Event()
        try:
            with limit_waiting(account), interruptible(interrupted.set) if yields else nullcontext():
                self.running.append(account)
                until(lambda: interrupted.is_set() or self.go.is_set(), PATIENCE_SEC, "it ends")
                if interrupted.is_set():
                    raise NoWorker
            self.results[account] = "served"
        except TooManyRequests:
            self.results[account] = "refused"

    def end(self) -> None:
        self.go.set()
        for thread in self._threads:
            thread.join(PATIENCE_SEC)


@pytest.fixture
def waiters() -> Iterator[Waiters]:
    found = Waiters()
    yield found
    found.end()
    waiting._used = RecentUse()


@pytest.mark.usefixtures("patient")
def test_an_account_without_a_place_gets_one_of_a_hundred_hostile_ones(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "TENURE_SEC", 0.0)
    for number in range(MAX_IN_PROCESS):
        waiters.start(f"hostile {number}")
    until(lambda: len(waiters.running) == MAX_IN_PROCESS, PATIENCE_SEC, "all places are taken")
    waiters.start("neighbour")
    until(lambda: "neighbour" in waiters.running, PATIENCE_SEC, "the neighbour gets a place")
    until(lambda: waiters.results == {"hostile 0": "refused"}, PATIENCE_SEC, "of the one that waited for longest")


@pytest.mark.usefixtures("patient")
def test_those_that_had_places_for_long_get_no_turn_before_the_others(waiters: Waiters) -> None:
    """Also if they fill the queue."""
    for number in range(MAX_QUEUED):
        waiting._used.add(f"served {number}", 1.0 + number)
    with limit_waiting("neighbour"):
        pass
    for number in range(MAX_IN_PROCESS):
        waiters.start(f"hostile {number}", yields=False)
    until(lambda: len(waiters.running) == MAX_IN_PROCESS, PATIENCE_SEC, "all places are taken")
    for number in range(MAX_QUEUED):
        waiters.start(f"served {number}")
        until(lambda number=number: len(waiting._queue) == number + 1, PATIENCE_SEC, "it queues")  # type: ignore[misc]
    waiters.start("neighbour")
    until(lambda: waiters.results == {f"served {MAX_QUEUED - 1}": "refused"}, PATIENCE_SEC, "the last one has to go")
    assert min(waiting._queue, key=lambda ticket: ticket.turn).account == "neighbour"


@pytest.mark.usefixtures("impatient")
def test_strangers_take_a_part_however_many_addresses_they_have() -> None:
    with ExitStack() as held:
        for number in range(waiting.MAX_STRANGERS):
            held.enter_context(limit_waiting(f"192.0.2.{number}", stranger=True))
        with pytest.raises(TooManyRequests), limit_waiting("198.51.100.1", stranger=True):
            pass
        with limit_waiting("account"):
            pass
