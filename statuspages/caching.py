"""Bytes that many readers ask for, made by one of them: fresh for FRESH_SEC, and shown a little longer while one makes
them anew.

Kept in Django's cache for all processes, and for LOCAL_SEC in each of them: ten thousand readers in a minute cost a
rendering every ten seconds, and a question to the cache every two.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.core.cache import cache

from core.cache import load, store

FRESH_SEC = 10.0
KEPT_SEC = 600
LOCAL_SEC = 2.0
MAKING_SEC = 15
"""How long one that makes bytes anew may take before another tries."""

T = TypeVar("T")


class Brief(Generic[T]):
    """What this process has looked at moments ago: at most `size` of them, the least used go first."""

    def __init__(self, size: int, *, seconds: float = LOCAL_SEC) -> None:
        self._size, self._seconds = size, seconds
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, otherwise: Callable[[], T]) -> T:
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() < kept[0]:
                self._kept.move_to_end(key)
                return kept[1]
        found = otherwise()
        with self._lock:
            self._kept[key] = (time.monotonic() + self._seconds, found)
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return found

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


@dataclass(frozen=True, slots=True)
class Rendered:
    """`gzipped` is empty where it would be no smaller. `made_at` is by the clock on the wall, for all processes."""

    body: bytes
    gzipped: bytes
    etag: str
    content_type: str
    made_at: float


_local: Brief[Rendered] = Brief(64)
_without: Brief[Rendered] = Brief(64, seconds=FRESH_SEC)
_making = threading.Lock()  # one first rendering at a time in a process: readers of a cold page wait for it


def fetch(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    """What is kept under the key, made anew by `make` where it is too old; what that raises is kept nowhere."""
    return _local.get(key, lambda: _shared(key, content_type, make))


def forget_local() -> None:
    """For tests, which do not wait."""
    _local.clear()
    _without.clear()


def _shared(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    found = _kept(key)
    if found is not None:
        # The first who finds it old makes it anew; all others show what there is meanwhile.
        if _is_fresh(found) or not cache.add(f"{key}:making", 1, MAKING_SEC):
            return found
        try:
            return _make(key, content_type, make)
        finally:
            cache.delete(f"{key}:making")
    with _making:
        found = _kept(key)
        # Of our own, where the broker keeps nothing for us.
        return _without.get(key, lambda: _make(key, content_type, make)) if found is None else found


def _kept(key: str) -> Rendered | None:
    return load(key, Rendered, seconds=KEPT_SEC)


def _is_fresh(found: Rendered) -> bool:
    return 0 <= time.time() - found.made_at < FRESH_SEC


def _make(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    made_at = time.time()
    body = make()
    packed = gzip.compress(body, compresslevel=6, mtime=0)
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    gzipped = packed if len(packed) < len(body) else b""
    found = Rendered(body, gzipped, etag, content_type, made_at)
    store(key, found, seconds=KEPT_SEC)
    return found
