"""Limit the requests that wait for a worker, a provider or a mail server.

Each occupies a thread of the web process for seconds, so an account gets few of them, and all accounts get only part of
the threads (`config.gateway`). Each web process counts its own, so a crash leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from core.db import release_connection
from core.errors import TooManyRequests

HELD = 8
"""Requests of one account that wait at the same time, each in one place."""
PRESENT = 24
"""The same, with those that wait for a place."""
PRESENT_IN_PROCESS = 64
"""Those of all accounts in a web process. The gateway has more threads."""
PATIENCE_SEC = 2.0
RETRY_SEC = 5.0

_changed = threading.Condition()
_held: Counter[str] = Counter()
_present: Counter[str] = Counter()


@contextmanager
def waiting_place(account: str) -> Iterator[None]:
    """Occupy a place of an account, or of a client address.

    A burst waits up to PATIENCE_SEC for its turn. Raises TooManyRequests.
    """
    _enter(account)
    try:
        yield
    finally:
        with _changed:
            _count_down(_held, account)
            _count_down(_present, account)
            _changed.notify_all()


def _enter(account: str) -> None:
    with _changed:
        if _present[account] >= PRESENT or _present.total() >= PRESENT_IN_PROCESS:
            raise TooManyRequests(wait=RETRY_SEC)
        if _held[account] >= HELD:
            release_connection()
        _present[account] += 1
        if not _changed.wait_for(lambda: _held[account] < HELD, PATIENCE_SEC):
            _count_down(_present, account)
            raise TooManyRequests(wait=RETRY_SEC)
        _held[account] += 1


def _count_down(counts: Counter[str], account: str) -> None:
    counts[account] -= 1
    if not counts[account]:
        del counts[account]
