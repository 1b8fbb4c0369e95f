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
    """The turn of a request's thread. `may_take_long`: only its waits for a turn count as lateness."""

    may_take_long: bool

    def pause(self) -> None: ...

    def resume(self) -> None:
        """Wait until it is the request's turn again."""


current: ContextVar[Turn | None] = ContextVar("turn", default=None)


def take_time() -> None:
    """Do not count the current request as late: it waits for something outside, or has much to do."""
    if (turn := current.get()) is not None:
        turn.may_take_long = True


@contextmanager
def paused() -> Iterator[None]:
    """Release the connection, and let other requests run while the block waits. It must not use the database.

    Do nothing outside of requests and in a transaction: requests with a turn may wait for connections, so requests
    that wait for a turn must not have one. Blocks may be nested.
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
