"""Deadlines of many requests, in one thread."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from core.deadlines import calling_after
from tests.processes.waiting import until

PATIENCE_SEC = 30


def test_each_is_called_once_in_the_order_of_deadlines_and_none_of_an_ended_block() -> None:
    called: list[int] = []
    before = threading.active_count()
    with calling_after(0.05, lambda: called.append(-1)):
        pass
    with ExitStack() as stack:
        for number in reversed(range(50)):
            stack.enter_context(calling_after(0.1 + number / 100, lambda number=number: called.append(number)))  # type: ignore[misc]
        assert threading.active_count() <= before + 1
        until(lambda: len(called) >= 50, PATIENCE_SEC, "all are called")
    assert called == list(range(50))


def test_one_that_fails_stops_no_other() -> None:
    called = threading.Event()

    def fail() -> None:
        raise OSError

    with calling_after(0.01, fail), calling_after(0.02, called.set):
        assert called.wait(PATIENCE_SEC)
