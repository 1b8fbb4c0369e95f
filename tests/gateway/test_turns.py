"""Turns of requests: how many run at the same time, which is next, and how pausing works."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter as Count
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from config import shares
from config.shares import ThreadLane
from core import metrics
from core.errors import Overloaded
from core.turns import paused

PATIENCE_SEC = 30


class Requests:
    """Requests that run until they are released. `order`: those that got a turn."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.pauses = 0
        self.ends: dict[str, threading.Event] = {}

    def work(self, name: str) -> str:
        self.order.append(name)
        assert self.ends.setdefault(name, threading.Event()).wait(PATIENCE_SEC)
        return name

    def pausing(self, name: str, other: threading.Event) -> str:
        with paused():
            self.pauses += 1
            assert other.wait(PATIENCE_SEC)
        return self.work(name)

    def end(self, name: str) -> None:
        self.ends.setdefault(name, threading.Event()).set()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SEC):
        while not is_so():
            await asyncio.sleep(0.001)


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def lane(*, at_once: int = 2, queue: int = 16) -> ThreadLane:
    return ThreadLane("requests", threads=16, at_once=at_once, queue=queue)


def begin(asked: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
    return asyncio.get_running_loop().create_task(asked)


@on_a_loop
async def test_a_client_runs_half_of_them_at_most() -> None:
    at, requests = lane(at_once=4), Requests()
    tasks = [begin(at.run("crowd", requests.work, f"crowd {number}")) for number in range(8)]
    await until(lambda: len(requests.order) == 2)
    tasks.append(begin(at.run("quiet", requests.work, "quiet")))
    await until(lambda: "quiet" in requests.order)
    assert len(requests.order) == 3
    for name in ("quiet", *(f"crowd {number}" for number in range(8))):
        requests.end(name)
    await asyncio.gather(*tasks)
    assert len(requests.order) == 9
    at.close()


@on_a_loop
async def test_who_asks_now_and_then_precedes_who_always_asks() -> None:
    """And each fourth turn goes to the client that has waited longest."""
    at, requests = lane(at_once=1), Requests()
    tasks = [begin(at.run("crowd", requests.work, f"crowd {number}")) for number in range(4)]
    await until(lambda: requests.order == ["crowd 0"])
    tasks.append(begin(at.run("second", requests.work, "second")))
    await asyncio.sleep(0)
    for name in ("crowd 0", "second"):
        requests.end(name)
    await until(lambda: requests.order == ["crowd 0", "second", "crowd 1"])
    assert at._ran.keys() == {"crowd"}, "the others have no request"
    newer = ("third", "fourth", "fifth", "sixth")
    tasks += [begin(at.run(client, requests.work, client)) for client in newer]
    await asyncio.sleep(0)
    for name in (*newer, *(f"crowd {number}" for number in range(1, 4))):
        requests.end(name)
    await asyncio.gather(*tasks)
    assert requests.order[3:] == ["third", "crowd 2", "fourth", "fifth", "sixth", "crowd 3"]
    at.close()


@on_a_loop
async def test_a_client_with_several_requests_is_not_passed_over_for_ever() -> None:
    """While others always have two."""
    at, requests = lane(queue=64), Requests()
    asked = [f"crowd {number}" for number in range(10)]
    served = Count[str]()

    def work(client: str) -> str:
        time.sleep(0.01)
        return client

    async def attack(client: str) -> str:
        while "quiet" not in requests.order:
            served[await at.run(client, work, client)] += 1
        return client

    attacks = [begin(attack(client)) for client in asked for _ in range(2)]
    await until(lambda: len(served) == len(asked))
    requests.end("quiet")
    quiet = [begin(at.run("quiet", requests.work, "quiet")) for _ in range(4)]
    async with asyncio.timeout(PATIENCE_SEC):
        await asyncio.gather(*attacks, *quiet)
    at.close()


@on_a_loop
async def test_requests_that_pause_let_others_run_and_wait_for_another_turn() -> None:
    at, requests, answered = lane(at_once=1), Requests(), threading.Event()
    waiting = [begin(at.run("waiting", requests.pausing, f"waiting {number}", answered)) for number in range(8)]
    await until(lambda: requests.pauses == 8)
    other = begin(at.run("other", requests.work, "other"))
    await until(lambda: requests.order == ["other"])
    answered.set()
    await until(lambda: len(at._resuming) == 8)
    assert requests.order == ["other"]
    for name in ("other", *(f"waiting {number}" for number in range(8))):
        requests.end(name)
    assert await other == "other"
    assert len(await asyncio.gather(*waiting)) == 8
    at.close()


@on_a_loop
async def test_a_full_queue_refuses_no_request_that_has_begun() -> None:
    at, requests, answered = lane(at_once=1, queue=2), Requests(), threading.Event()
    begun = []
    for number in range(3):
        begun.append(begin(at.run("begun", requests.pausing, f"begun {number}", answered)))
        await until(lambda: requests.pauses == len(begun))
    busy = begin(at.run("busy", requests.work, "busy"))
    await until(lambda: requests.order == ["busy"])
    crowd = [begin(at.run("crowd", requests.work, "crowd")) for _ in range(3)]
    answered.set()
    await until(lambda: len(at._resuming) == 3)
    for name in ("busy", "crowd", *(f"begun {number}" for number in range(3))):
        requests.end(name)
    assert await asyncio.gather(*begun) == ["begun 0", "begun 1", "begun 2"]
    assert await busy == "busy"
    assert [type(one) for one in await asyncio.gather(*crowd, return_exceptions=True)] == [str, str, Overloaded]
    assert requests.order[4:] == ["crowd"] * 2, "those that had begun are first"
    at.close()


@on_a_loop
async def test_more_requests_that_pause_than_there_are_threads_do_not_wait_for_each_other() -> None:
    """No request with a turn waits for the thread of a request that waits for a turn."""
    at = ThreadLane("requests", threads=6, at_once=2, queue=1_000)
    places = threading.Semaphore(4)

    def work() -> str:
        with paused(), places:
            time.sleep(0.001)
        return "done"

    async with asyncio.timeout(PATIENCE_SEC):
        found = await asyncio.gather(*(at.run(f"client {number % 50}", work) for number in range(500)))
    assert found == ["done"] * 500
    at.close()


@on_a_loop
async def test_a_queue_that_is_full_of_others_refuses_the_newest_of_the_one_with_the_most() -> None:
    at, requests = lane(at_once=1, queue=2), Requests()
    running = begin(at.run("crowd", requests.work, "running"))
    await until(lambda: requests.order == ["running"])
    crowd = [begin(at.run("crowd", requests.work, f"crowd {number}")) for number in range(2)]
    quiet = begin(at.run("quiet", requests.work, "quiet"))
    with pytest.raises(Overloaded):
        await crowd[1]
    for name in ("running", "crowd 0", "quiet"):
        requests.end(name)
    assert [*await asyncio.gather(running, crowd[0], quiet)] == ["running", "crowd 0", "quiet"]
    at.close()


@on_a_loop
async def test_a_request_that_is_refused_and_cancelled_at_once_gives_back_no_turn() -> None:
    at, requests = lane(at_once=1, queue=2), Requests()
    running = begin(at.run("crowd", requests.work, "running"))
    await until(lambda: requests.order == ["running"])
    waiting = begin(at.run("first", requests.work, "waiting"))
    newest = begin(at.run("first", requests.work, "newest"))
    await asyncio.sleep(0)
    other = begin(at.run("other", requests.work, "other"))
    await asyncio.sleep(0)  # the newest is refused now, and has not run since
    newest.cancel()
    for name in ("running", "waiting", "other"):
        requests.end(name)
    await asyncio.gather(running, waiting, other, newest, return_exceptions=True)
    await until(lambda: not at._present)
    assert (at._free, at._free_threads) == (1, 16)
    at.close()


@on_a_loop
async def test_a_turn_ends_with_its_thread_even_if_its_caller_has_gone() -> None:
    at, requests = lane(at_once=1), Requests()
    left = begin(at.run("left", requests.work, "left"))
    await until(lambda: requests.order == ["left"])
    gone = begin(at.run("gone", requests.work, "gone"))
    following = begin(at.run("following", requests.work, "following"))
    await asyncio.sleep(0)
    for task in (left, gone):
        task.cancel()
    await asyncio.gather(left, gone, return_exceptions=True)
    assert requests.order == ["left"]
    for name in ("left", "following"):
        requests.end(name)
    assert await following == "following"
    await until(lambda: not at._present and not at._running)
    assert requests.order == ["left", "following"]
    at.close()


def late_pages() -> float:
    metrics.report()
    return metrics.LATE.read(metrics.read_levels())["pages",]


async def pass_time(seconds: float) -> None:
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end)


@pytest.fixture
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "REQUEST_SEC", 0.1)


@pytest.mark.usefixtures("_short_patience")
@on_a_loop
async def test_requests_that_wait_for_others_are_late_also_if_their_client_has_several() -> None:
    at, requests = lane(at_once=4), Requests()
    crowds = [begin(at.run(f"crowd {number // 2}", requests.work, f"crowd {number}")) for number in range(4)]
    await until(lambda: len(requests.order) == 4)
    page = [begin(at.run("page", requests.work, f"page {number}")) for number in range(4)]
    await pass_time(0.2)
    before = late_pages()
    for number in range(4):
        requests.end(f"page {number}")
    requests.end("crowd 0")
    await asyncio.gather(*page)
    requests.end("crowd 1")
    await crowds[0]
    assert late_pages() == before + 5
    for number in range(4):
        requests.end(f"crowd {number}")
    await asyncio.gather(*crowds)
    at.close()


@pytest.mark.usefixtures("_short_patience")
@on_a_loop
async def test_requests_are_late_although_more_of_their_client_came_while_they_waited() -> None:
    at, requests = lane(at_once=2), Requests()
    crowds = [begin(at.run(f"crowd {number}", requests.work, f"crowd {number}")) for number in range(2)]
    await until(lambda: len(requests.order) == 2)
    page = [begin(at.run("page", requests.work, f"page {number}")) for number in range(6)]
    await pass_time(0.2)
    before = late_pages()
    for number in range(2):
        requests.end(f"page {number}")
    requests.end("crowd 0")
    await asyncio.gather(crowds[0], *page[:2])
    assert late_pages() == before + 3
    for number in range(2, 6):
        requests.end(f"page {number}")
    await asyncio.gather(*page)
    assert late_pages() == before + 3, "these came to two of their client"
    requests.end("crowd 1")
    await crowds[1]
    at.close()


@pytest.mark.usefixtures("_short_patience")
@on_a_loop
async def test_requests_that_wait_for_those_of_their_own_client_are_not_late() -> None:
    at, requests = lane(), Requests()
    tasks = [begin(at.run("page", requests.work, f"{number}")) for number in range(2)]
    await until(lambda: len(requests.order) == 1)
    await pass_time(0.2)
    before = late_pages()
    for number in range(2):
        requests.end(f"{number}")
    await asyncio.gather(*tasks)
    assert late_pages() == before + 1  # the one that took long itself
    at.close()
