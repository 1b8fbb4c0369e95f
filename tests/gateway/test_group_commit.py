"""Group commits while the database hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from config.pings import MAX_WAITING, GroupCommit
from core.errors import Overloaded


def test_items_are_refused_while_too_many_wait() -> None:
    hangs = threading.Event()

    def work(items: Sequence[int]) -> Sequence[int]:
        hangs.wait(60)
        return items

    async def run_all() -> list[int | BaseException]:
        commits = GroupCommit("test", work)
        try:
            tasks = [asyncio.ensure_future(commits.run("192.0.2.1", item)) for item in range(MAX_WAITING + 5)]
            await asyncio.sleep(0)  # each task runs until its result or refusal
            hangs.set()
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            hangs.set()
            commits.close()

    # The first one starts a separate batch at once.
    results = asyncio.run(run_all())
    assert results[: MAX_WAITING + 1] == list(range(MAX_WAITING + 1))
    assert {type(result) for result in results[MAX_WAITING + 1 :]} == {Overloaded}


def test_clients_take_turns_and_the_one_with_the_most_is_refused() -> None:
    hangs, done = threading.Event(), list[str]()

    def work(items: Sequence[str]) -> Sequence[str]:
        hangs.wait(60)
        done.extend(items)
        return items

    async def run_all() -> list[str | BaseException]:
        commits = GroupCommit("test", work)
        try:
            crowd = [asyncio.ensure_future(commits.run("192.0.2.1", "crowd")) for _ in range(MAX_WAITING + 5)]
            await asyncio.sleep(0)
            quiet = [asyncio.ensure_future(commits.run("192.0.2.2", f"quiet {number}")) for number in range(3)]
            await asyncio.sleep(0)
            hangs.set()
            await asyncio.gather(*crowd, return_exceptions=True)
            return await asyncio.gather(*quiet, return_exceptions=True)
        finally:
            hangs.set()
            commits.close()

    assert asyncio.run(run_all()) == ["quiet 0", "quiet 1", "quiet 2"]
    assert {"quiet 0", "quiet 1", "quiet 2"} <= set(done[:10]), "their turns came at once"


def test_an_error_is_that_of_each_item_and_the_next_batch_works() -> None:
    def work(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            raise ValueError(items)
        return items

    async def run_all() -> list[list[int | BaseException]]:
        commits = GroupCommit("test", work)
        try:
            # The first one starts a separate batch at once.
            return [
                await asyncio.gather(*[commits.run("192.0.2.1", item) for item in items], return_exceptions=True)
                for items in ([7, 0, 1], [2, 3])
            ]
        finally:
            commits.close()

    first, second = asyncio.run(run_all())
    assert [type(each) for each in first] == [int, ValueError, ValueError]
    assert second == [2, 3]
