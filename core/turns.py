"""The turn of a request. The web process runs only a few requests at the same time (`config.shares`). A request that
waits for something outside the process gives up its turn for that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from django.db import connection


class Turn(Protocol):
    """What the thread of a request holds. `may_take_long`: only its waits for a turn count as lateness."""

    may_take_long: bool

    def pause(self) -> None: ...

    def resume(self) -> None:
        """Wait until it is the request's turn again."""


current: ContextVar[Turn | None] = ContextVar("turn", default=None)


def take_time() -> None:
    """Let the current request take long without being late: it waits for something outside, or has much to do."""
    if (turn := current.get()) is not None:
        turn.may_take_long = True


@contextmanager
def paused() -> Iterator[None]:
    """Release the connection, and let other requests run while the block waits. It must not use the database.

    Outside of requests, and in a transaction, do nothing: those that have a turn may wait for connections, so those
    that wait for a turn must hold none. Blocks may be nested.
    """
    turn = current.get()
    if turn is None or connection.in_atomic_block:
        yield
        return
    connection.close()
    token = current.set(None)
    turn.pause()
    try:
        yield
    finally:
        current.reset(token)
        turn.resume()
