"""A queue that serves those who put something into it in turns. Not for use by several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A queue of at most `most` items from which clients are served in turns, each in the order of its own items."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0
        self._waiting: dict[str, deque[Item]] = {}

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        """Iterate the clients, the one that was served last at the end."""
        return iter(self._waiting)

    def put(self, client: str, item: Item) -> tuple[Item, bool] | None:
        """Add an item. If the queue is full, remove the newest item of the client that has the most.

        Among equals that is the one whose turn is last. Return the removed item, and whether its client had others.
        """
        queue = self._waiting.get(client)
        if queue is None:
            queue = self._waiting[client] = deque()
        queue.append(item)
        self._length += 1
        if self._length <= self._most:
            return None
        most = max(reversed(self._waiting), key=lambda one: len(self._waiting[one]))
        has_others = len(self._waiting[most]) > 1
        removed = self._waiting[most][-1]
        self.remove(most, removed)
        return removed, has_others

    def pop(self, client: str | None = None) -> Item:
        """Remove the next item of a client, or of the client whose turn it is. Then each other client has a turn."""
        client = next(iter(self._waiting)) if client is None else client
        queue = self._waiting.pop(client)
        item = queue.popleft()
        if queue:
            self._waiting[client] = queue
        self._length -= 1
        return item

    def remove(self, client: str, item: Item) -> None:
        """Remove an item if it waits."""
        queue = self._waiting.get(client, deque())
        with suppress(ValueError):
            queue.remove(item)
            self._length -= 1
            if not queue:
                del self._waiting[client]
