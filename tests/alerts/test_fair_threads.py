"""Owners take turns at the threads, however much work one of them has submitted before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from alerts.testing import FairThreads

PATIENCE_SEC = 30


def test_owners_take_turns() -> None:
    threads = FairThreads("test", threads=1, most_of_owner=1)
    started, submitted, ended = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def job(name: str) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            if name == "a1":
                started.set()
                submitted.wait(PATIENCE_SEC)
            if len(order) == 4:
                ended.set()

        return run

    threads.submit("a", job("a1"))
    assert started.wait(PATIENCE_SEC)
    for owner, name in (("a", "a2"), ("a", "a3"), ("b", "b1")):
        threads.submit(owner, job(name))
    submitted.set()
    assert ended.wait(PATIENCE_SEC)
    assert order == ["a1", "a2", "b1", "a3"]


def test_an_owner_at_its_limit_leaves_threads_to_others() -> None:
    threads = FairThreads("test", threads=2, most_of_owner=1)
    released, first, other = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        first.set()
        released.wait(PATIENCE_SEC)

    threads.submit("a", hold)
    assert first.wait(PATIENCE_SEC)
    second = threading.Event()
    threads.submit("a", second.set)
    threads.submit("b", other.set)
    assert other.wait(PATIENCE_SEC)
    assert not second.is_set()
    released.set()
    assert second.wait(PATIENCE_SEC)
