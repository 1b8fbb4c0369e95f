"""The turn of a request. The web process answers only a few at the same time (`config.shares`), and one that waits for
something outside of the process lets others go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Turn(Protocol):
    """What the thread of a request holds."""

    def pause(self) -> None: ...

    def resume(self) -> None:
        """Wait until it is the request's turn again."""


current: ContextVar[Turn | None] = ContextVar("turn", default=None)


@contextmanager
def paused() -> Iterator[None]:
    """Let other requests run while the block waits. Outside of requests, do nothing. Blocks may be nested.

    It must not use the database: release the connection before.
    """
    turn = current.get()
    if turn is None:
        yield
        return
    token = current.set(None)
    turn.pause()
    try:
        yield
    finally:
        current.reset(token)
        turn.resume()
