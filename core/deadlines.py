"""Callbacks at deadlines, all in one thread: a `threading.Timer` for each request would be a thread for each."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

_changed = threading.Condition()
_numbers = itertools.count()
_heap: list[tuple[float, int]] = []
_callbacks: dict[int, Callable[[], object]] = {}
_thread: threading.Thread | None = None


@contextmanager
def calling_after(seconds: float, callback: Callable[[], object]) -> Iterator[None]:
    """Call it in another thread if the block runs for longer. It must not wait for anything."""
    global _thread
    number = next(_numbers)
    with _changed:
        _callbacks[number] = callback
        heapq.heappush(_heap, (time.monotonic() + seconds, number))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="deadlines", daemon=True)
            _thread.start()
        if _heap[0][1] == number:
            _changed.notify()
    try:
        yield
    finally:
        with _changed:
            _callbacks.pop(number, None)


def _run() -> None:
    while True:
        with _changed:
            while not _heap or (_callbacks.get(_heap[0][1]) and _heap[0][0] > time.monotonic()):
                _changed.wait(_heap[0][0] - time.monotonic() if _heap else None)
            callback = _callbacks.pop(heapq.heappop(_heap)[1], None)
        if callback is not None:
            try:
                callback()
            except Exception:
                logger.exception("a deadline could not be enforced")
