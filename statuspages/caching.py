"""Caches of status pages: which page has an address, and what its parts look like.

Entries are in Django's cache, which all processes share, and for LOCAL_SEC in each process. A rendering is fresh for
FRESH_SEC; then one reader renders it again while the others get the stale copy. Ten thousand readers in a minute cost
a rendering every ten seconds and a cache query every two.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from django.core.cache import cache
from django.db import transaction
from django.utils.crypto import salted_hmac

from core.cache import load, store
from core.packed import Packed, pack
from statuspages.models import StatusPage, origin

FRESH_SEC = 10
KEPT_SEC = 600
LOCAL_SEC = 2
RENDER_LEASE_SEC = 15
"""How long a reader may render before another one tries."""
PAGE_SEC = 10
MAX_ADDRESS = 253

T = TypeVar("T")


class LocalCache(Generic[T]):
    """A thread-safe cache of this process with a time limit. Evicts the least recently used above `size` entries.

    Django's LocMemCache pickles each entry on each read: half as much again for a reader of a large page.
    """

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
class PublishedPage:
    """A page at one of its two addresses: all that a request needs before rendering.

    `page`, `json` and `atom` are paths. Other parts are below `root`, and `origin` comes before all of them. `lock` is
    empty without a password, and changes with it.
    """

    page_id: int
    version: int
    lock: str
    origin: str
    root: str
    page: str
    json: str
    atom: str


def find_page(address: str) -> PublishedPage | None:
    """Return the published page of a slug or domain, or None. Domains contain a dot."""
    return _local_pages.get(address, lambda: _find_page(address))


def _find_page(address: str) -> PublishedPage | None:
    if len(address) > MAX_ADDRESS:
        return None
    key = _key(address)
    found = load(key, PublishedPage, seconds=PAGE_SEC)
    if found is not None:
        return found
    is_domain = "." in address
    by = {"custom_domain": address, "domain_verified_at__isnull": False} if is_domain else {"slug": address}
    page = StatusPage.objects.filter(published=True, owner__is_active=True, **by).first()
    if page is None:  # not cached: visitors can request any number of unknown addresses
        return None
    lock = page.password_hash and salted_hmac("pulsekeeper.status-pages", page.password_hash).hexdigest()
    root = "" if is_domain else f"/status/{page.slug}"
    site, feeds = origin(None if root else page.custom_domain), root or "/status"
    found = PublishedPage(page.pk, page.version, lock, site, root, root or "/", f"{feeds}.json", f"{feeds}.atom")
    store(key, found, seconds=PAGE_SEC)
    return found


def forget_on_commit(*addresses: str | None) -> None:
    """Remove pages from the shared cache after the transaction. Local caches expire within seconds."""
    keys = [_key(address) for address in addresses if address]
    transaction.on_commit(lambda: cache.delete_many(keys))


def _key(address: str) -> str:
    return f"status-page-at:{address}"


@dataclass(frozen=True, slots=True)
class Rendered(Packed):
    """`made_at` is Unix time, comparable between processes."""

    made_at: float


_local_pages: LocalCache[PublishedPage | None] = LocalCache(1_024)
_local: LocalCache[Rendered] = LocalCache(64)
_fallback: LocalCache[Rendered] = LocalCache(64, seconds=FRESH_SEC)
_rendering = threading.Lock()  # concurrent readers of an uncached page wait for one rendering


def fetch(key: str, content_type: str, make: Callable[[], bytes]) -> Rendered:
    """Return the entry of `key`, rendered by `make` if absent or stale. Exceptions of `make` are not cached."""
    return _local.get(key, lambda: _shared(key, content_type, make))


def clear_local_caches() -> None:
    """Clear the caches of this process, for tests."""
    _local_pages.clear()
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
    found = Rendered(**asdict(pack(make(), content_type)), made_at=made_at)
    store(key, found, seconds=KEPT_SEC)
    return found
