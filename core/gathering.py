"""Work of many threads done in one go: what a database does for one at nearly the price of thirty."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Wish(Generic[Item, Answer]):
    __slots__ = ("answer", "error", "item", "leads", "wake")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.wake = threading.Lock()
        self.wake.acquire()


class Gatherer(Generic[Item, Answer]):
    """Group commit among threads. The first to come works for all that wait by then, itself included.

    Those that come meanwhile are the next batch, and the first of them works for it. Nobody waits for company: a
    caller that is alone is a batch of one.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Answer]], *, most: int) -> None:
        """`work` gives an answer for each of at most `most` items, in their order."""
        self._work = work
        self._most = most
        self._waiting: deque[_Wish[Item, Answer]] = deque()
        self._busy = False
        self._lock = threading.Lock()

    def ask(self, item: Item) -> Answer:
        """The answer to this item. Raises whatever `work` raised for the batch that it was in."""
        wish: _Wish[Item, Answer] = _Wish(item)
        with self._lock:
            self._waiting.append(wish)
            wish.leads = not self._busy
            self._busy = True
        if not wish.leads:
            wish.wake.acquire()
        if wish.leads:
            self._lead()
        if wish.error is not None:
            raise wish.error
        return wish.answer  # type: ignore[return-value]  # set, where there is no error

    def _lead(self) -> None:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        try:
            for wish, answer in zip(batch, self._work([wish.item for wish in batch]), strict=True):
                wish.answer = answer
        except BaseException as error:  # noqa: BLE001 - each of those who wait raises it
            for wish in batch:
                wish.error = error
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._busy = following is not None
        if following is not None:
            following.leads = True
            following.wake.release()
        for wish in batch[1:]:
            wish.wake.release()
