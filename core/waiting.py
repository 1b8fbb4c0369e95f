"""Limit the requests that wait for a worker, a provider or a mail server.

Each occupies a thread of the web process for seconds, so an account gets few of them, and all accounts get only part of
the threads (`config.gateway`). Each web process counts its own, so a crash leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from core.db import release_connection
from core.errors import TooManyRequests

MAX_ACTIVE = 8
"""Requests of one account that run at the same time."""
MAX_PRESENT = 24
"""Requests of one account that run, or wait until they may."""
MAX_IN_PROCESS = 64
"""Requests of all accounts in a web process. The gateway has more threads."""
PATIENCE_SEC = 2.0
RETRY_SEC = 5.0

_changed = threading.Condition()
_active: Counter[str] = Counter()
_present: Counter[str] = Counter()


@contextmanager
def limit_waiting(account: str, *, most: int = MAX_ACTIVE) -> Iterator[None]:
    """Run the block while less than `most` requests of the account, or of a client address, run theirs.

    A burst waits up to PATIENCE_SEC for its turn. Raises TooManyRequests.
    """
    with ExitStack() as stack:
        with _changed:
            if _present[account] >= MAX_PRESENT or _present.total() >= MAX_IN_PROCESS:
                raise TooManyRequests(wait=RETRY_SEC)
            if _active[account] >= most:
                release_connection()
            stack.enter_context(_counted(_present, account))
            if not _changed.wait_for(lambda: _active[account] < most, PATIENCE_SEC):
                raise TooManyRequests(wait=RETRY_SEC)
            stack.enter_context(_counted(_active, account))
        yield


@contextmanager
def _counted(counts: Counter[str], account: str) -> Iterator[None]:
    counts[account] += 1
    try:
        yield
    finally:
        with _changed:
            counts[account] -= 1
            if not counts[account]:
                del counts[account]
            _changed.notify_all()
