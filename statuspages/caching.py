"""A cache of rendered pages. One reader renders a stale page while the others get the stale copy.

Entries are fresh for FRESH_SEC. They are in Django's cache, which all processes share, and for LOCAL_SEC in each
process: ten thousand readers in a minute cost a rendering every ten seconds and a cache query every two.
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
RENDER_LEASE_SEC = 15
"""How long a reader may render before another one tries."""

T = TypeVar("T")


class LocalCache(Generic[T]):
    """A thread-safe cache of this process with a time limit. Evicts the least recently used above `size` entries."""

    def __init__(self, size: int, *, seconds: float = LOCAL_SEC) -> None:
        self._size, self._seconds = size, seconds
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, load: Callable[[], T]) -> T:
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() < kept[0]:
                self._kept.move_to_end(key)
                return kept[1]
        found = load()
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
    """`gzipped` is empty if it would not be smaller. `made_at` is Unix time, comparable between processes."""

    body: bytes
    gzipped: bytes
    etag: str
    content_type: str
    made_at: float


_local: LocalCache[Rendered] = LocalCache(64)
_fallback: LocalCache[Rendered] = LocalCache(64, seconds=FRESH_SEC)
_rendering = threading.Lock()  # concurrent readers of an uncached page wait for one rendering


def fetch(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    """Return the entry of `key`, rendered by `make` if absent or stale. Exceptions of `make` are not cached."""
    return _local.get(key, lambda: _shared(key, content_type, make))


def clear_local_caches() -> None:
    """Clear the caches of this process, for tests."""
    _local.clear()
    _fallback.clear()


def _shared(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    found = load(key, Rendered, seconds=KEPT_SEC)
    if found is not None:
        # The first reader of a stale entry renders it; the others get the stale one.
        is_fresh = 0 <= time.time() - found.made_at < FRESH_SEC
        if is_fresh or not cache.add(f"{key}:rendering", 1, RENDER_LEASE_SEC):
            return found
        try:
            return _make(key, content_type, make)
        finally:
            cache.delete(f"{key}:rendering")
    with _rendering:
        # Keep a local copy, in case the cache server is down.
        return load(key, Rendered, seconds=KEPT_SEC) or _fallback.get(key, lambda: _make(key, content_type, make))


def _make(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    made_at = time.time()
    body = make()
    packed = gzip.compress(body, compresslevel=6, mtime=0)
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    found = Rendered(body, packed if len(packed) < len(body) else b"", etag, content_type, made_at)
    store(key, found, seconds=KEPT_SEC)
    return found
