"""Work of many threads done in one go."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from core.gathering import Gatherer
from tests.processes.waiting import until

PATIENCE_SEC = 10


class Squares:
    """Work that can be held up; it does not like negative numbers."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.begun.set()
        assert self.go.wait(PATIENCE_SEC)
        if any(number < 0 for number in numbers):
            raise ValueError("a negative number")
        return squares(numbers)


def squares(numbers: Sequence[int]) -> list[int]:
    return [number * number for number in numbers]


def waits(gatherer: Gatherer[int, int], count: int) -> bool:
    return len(gatherer._waiting) == count


def gathered(work: Squares, first: int, others: Sequence[int], *, most: int = 100) -> dict[int, Future[int]]:
    """All asked: `others`, in their order, while the work for `first` is held up."""
    gatherer = Gatherer(work, most=most)
    with ThreadPoolExecutor(max_workers=1 + len(others)) as threads:
        asked = {first: threads.submit(gatherer.ask, first)}
        assert work.begun.wait(PATIENCE_SEC)
        for count, number in enumerate(others, 1):
            asked[number] = threads.submit(gatherer.ask, number)
            until(partial(waits, gatherer, count), PATIENCE_SEC, "it waits")
        work.go.set()
    return asked


def test_who_is_alone_is_a_batch_of_one() -> None:
    work = Squares()
    work.go.set()
    gatherer = Gatherer(work, most=100)
    assert [gatherer.ask(number) for number in (3, 4)] == [9, 16]
    assert work.batches == [[3], [4]]


def test_those_that_come_meanwhile_are_the_next_batch() -> None:
    work = Squares()
    asked = gathered(work, 1, [2, 3, 4])
    assert {number: future.result() for number, future in asked.items()} == {1: 1, 2: 4, 3: 9, 4: 16}
    assert work.batches == [[1], [2, 3, 4]]


def test_a_batch_is_no_longer_than_it_may_be() -> None:
    work = Squares()
    asked = gathered(work, 1, [2, 3, 4, 5, 6], most=2)
    assert all(future.result() == number**2 for number, future in asked.items())
    assert work.batches == [[1], [2, 3], [4, 5], [6]]


def test_an_error_is_that_of_its_batch_only() -> None:
    work = Squares()
    asked = gathered(work, 1, [2, -3, 4, 5], most=2)
    assert [asked[number].result() for number in (1, 4, 5)] == [1, 16, 25]
    for number in (2, -3):
        with pytest.raises(ValueError, match="a negative number"):
            asked[number].result()


def test_an_answer_too_few_is_an_error_and_no_hang() -> None:
    gatherer: Gatherer[int, int] = Gatherer(lambda _: [], most=100)
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            gatherer.ask(1)


def test_many_threads_are_all_answered() -> None:
    gatherer = Gatherer(squares, most=5)
    with ThreadPoolExecutor(max_workers=16) as threads:
        assert list(threads.map(gatherer.ask, range(2_000))) == [number**2 for number in range(2_000)]
