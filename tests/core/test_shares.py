"""Turns at a resource of this process: clients with little use come first, and those with most are refused."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from core import shares
from core.errors import TooManyRequests
from core.shares import Shares
from tests.processes.waiting import until

PATIENCE_SEC = 30


def burn(at: Shares, *users: str, rounds: int = 1) -> None:
    """Use CPU in turns."""
    for _ in range(rounds):
        with at.turn(*users):
            sum(range(200_000))


class Queue:
    """Requests in threads whose turns last until `end`."""

    def __init__(self, at: Shares, stack: ExitStack) -> None:
        self.order: list[str] = []
        self.end = threading.Event()
        self._shares = at
        self._pool = stack.enter_context(ThreadPoolExecutor(64))
        stack.callback(self.end.set)

    def ask(self, *users: str) -> Future[bool]:
        """Ask for a turn, and return once the request runs, waits or is refused."""
        count = self._count(users)
        asked = self._pool.submit(self._use, *users)
        until(lambda: asked.done() or self._count(users) > count, PATIENCE_SEC, "it waits")
        return asked

    def _count(self, users: tuple[str, ...]) -> int:
        return sum(ticket.users == users for ticket in self._shares._waiting) + self.order.count(users[0])

    def _use(self, *users: str) -> bool:
        try:
            with self._shares.turn(*users):
                self.order.append(users[0])
                assert self.end.wait(PATIENCE_SEC)
        except TooManyRequests:
            return False
        return True


def make(*, at_once: int = 1, most_waiting: int = 16, most_present: int = 2, patience_sec: float = 30) -> Shares:
    return Shares(
        at_once=at_once,
        most_waiting=most_waiting,
        most_present=most_present,
        patience_sec=patience_sec,
    )


def test_who_used_little_goes_before_those_who_used_much() -> None:
    at = make()
    for number in range(10):
        burn(at, f"attacker {number}", rounds=9)
    with ExitStack() as stack:
        queue = Queue(at, stack)
        queue.ask("first")
        asked = [queue.ask(f"attacker {number}") for number in range(10)] + [queue.ask("reader")]
        queue.end.set()
        assert all(one.result(PATIENCE_SEC) for one in asked)
    assert queue.order[:2] == ["first", "reader"]


def test_one_user_has_few_requests_and_is_refused_beyond_them() -> None:
    at = make()
    with ExitStack() as stack:
        queue = Queue(at, stack)
        asked = [queue.ask("attacker", f"account {number}") for number in range(5)]
        other = queue.ask("reader")
        queue.end.set()
        assert [one.result(PATIENCE_SEC) for one in asked] == [True, True, False, False, False]
        assert other.result(PATIENCE_SEC)
    assert not at._present
    assert (at._running, at._waiting) == (0, [])


def test_a_full_queue_refuses_those_who_used_most() -> None:
    at = make(most_waiting=4)
    burn(at, "attacker", rounds=5)
    with ExitStack() as stack:
        queue = Queue(at, stack)
        queue.ask("first")
        heavy = queue.ask("attacker")
        asked = [queue.ask(f"reader {number}") for number in range(4)]
        assert heavy.result(PATIENCE_SEC) is False
        assert queue.ask("attacker").result(PATIENCE_SEC) is False
        assert queue.ask("one more").result(PATIENCE_SEC) is False, "the newest of equals"
        queue.end.set()
        assert all(one.result(PATIENCE_SEC) for one in asked)


def test_many_requests_of_few_users_are_not_before_one_of_another() -> None:
    """While no client has used the resource yet."""
    at = make(most_waiting=6)
    with ExitStack() as stack:
        queue = Queue(at, stack)
        queue.ask("first")
        asked = [queue.ask(f"attacker {number % 3}") for number in range(6)]
        reader = queue.ask("reader")
        queue.end.set()
        assert reader.result(PATIENCE_SEC)
        assert sorted(one.result(PATIENCE_SEC) for one in asked) == [False, *[True] * 5]
    assert queue.order.index("reader") <= 2, "after one of the client that has one left"


def test_the_last_place_is_for_those_without_another_request() -> None:
    at = make(at_once=2)
    with ExitStack() as stack:
        queue = Queue(at, stack)
        asked = [queue.ask("attacker"), queue.ask("attacker")]
        assert queue.order == ["attacker"]
        asked.append(queue.ask("reader"))
        until(lambda: queue.order == ["attacker", "reader"], PATIENCE_SEC, "it runs beside the attacker's")
        queue.end.set()
        assert all(one.result(PATIENCE_SEC) for one in asked)


def test_no_wait_lasts_forever() -> None:
    at = make(patience_sec=0.01)
    with at.turn("one"), pytest.raises(TooManyRequests), at.turn("other"):
        pass
    burn(at, "other")
    assert not at._present


def test_past_use_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "CLEAN_ABOVE", 10)
    monkeypatch.setattr(shares, "FORGOTTEN_SEC", PATIENCE_SEC)  # as after a long time
    at = make()
    for number in range(100):
        burn(at, f"client {number}")
    assert len(at._used._used) <= 11
