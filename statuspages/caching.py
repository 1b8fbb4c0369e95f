"""Caches of status pages: which page has an address, and what its parts look like.

Entries are in Django's cache, which all processes share, and for LOCAL_SEC in each process. A rendering is fresh for
FRESH_SEC; then one reader renders it again while the others get the stale copy. Ten thousand readers in a minute cost
a rendering every ten seconds and a cache query every two.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from django.core.cache import cache
from django.db import transaction
from django.utils.crypto import salted_hmac

from core.cache import load, store
from core.errors import TooManyRequests
from core.packed import Packed, pack
from core.shares import Shares
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
    owner_id: int
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
    found = PublishedPage(
        page.pk, page.owner_id, page.version, lock, site, root, root or "/", f"{feeds}.json", f"{feeds}.atom"
    )
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
_turns = Shares(at_once=1, most_waiting=12, most_present=4, patience_sec=5.0)
"""Renderings of this process, one at a time. Fewer requests wait than the gateway has threads for pages."""


def fetch(key: str, content_type: str, make: Callable[[], bytes], *, users: Sequence[str] = ()) -> Rendered:
    """Return the entry of `key`, rendered by `make` if absent or stale. Exceptions of `make` are not cached.

    `users` are the reader's address and the page's owner, whose share of renderings it is. Raises TooManyRequests.
    """
    return _local.get(key, lambda: _shared(key, content_type, make, users))


def clear_local_caches() -> None:
    """Clear the caches of this process, and what it has stored in the broker's, for tests."""
    _budget.clear()
    _local_pages.clear()
    _local.clear()
    _fallback.clear()


def _shared(key: str, content_type: str, make: Callable[[], bytes], users: Sequence[str]) -> Rendered:
    found = _load(key)
    if found is not None:
        # The first reader of a stale entry renders it; the others get the stale one.
        is_fresh = 0 <= time.time() - found.made_at < FRESH_SEC
        if is_fresh or not cache.add(f"{key}:rendering", 1, RENDER_LEASE_SEC):
            return found
        try:
            with _turns.turn(*users):
                return _make(key, content_type, make, users)
        except TooManyRequests:
            return found
        finally:
            cache.delete(f"{key}:rendering")
    with _turns.turn(*users):
        # Keep a local copy, in case the cache server is down or the entry is not stored.
        return _load(key) or _fallback.get(key, lambda: _make(key, content_type, make, users))


def _make(key: str, content_type: str, make: Callable[[], bytes], users: Sequence[str]) -> Rendered:
    made_at = time.time()
    found = Rendered(**asdict(pack(make(), content_type)), made_at=made_at)
    data = found.gzipped or found.body
    if _budget.take(key, len(data), owner=users[-1] if users else ""):
        store(key, _Stored(data, bool(found.gzipped), found.etag, content_type, made_at), seconds=KEPT_SEC)
    return found


def _load(key: str) -> Rendered | None:
    stored = load(key, _Stored, seconds=KEPT_SEC)
    if stored is None:
        return None
    body = gzip.decompress(stored.data) if stored.is_gzipped else stored.data
    gzipped = stored.data if stored.is_gzipped else b""
    return Rendered(body, gzipped, stored.etag, stored.content_type, stored.made_at)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A rendering in the shared cache, in one form: the broker's memory is for tasks."""

    data: bytes
    is_gzipped: bool
    etag: str
    content_type: str
    made_at: float


class _Budget:
    """Limits the bytes of renderings that this process keeps in the broker, which is full at 192 MB.

    A rendering beyond the limit stays in the process for FRESH_SEC.
    """

    def __init__(self, most: int, *, most_of_owner: int) -> None:
        self._most, self._most_of_owner = most, most_of_owner
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, int, float]] = OrderedDict()
        self._sizes: Counter[str] = Counter()

    def take(self, key: str, size: int, *, owner: str) -> bool:
        """Return whether an entry of this size may be stored. If so, count it until it is removed."""
        now = time.monotonic()
        with self._lock:
            while self._kept and next(iter(self._kept.values()))[2] <= now:
                self._drop(next(iter(self._kept)))
            self._drop(key)
            if self._sizes[owner] + size > self._most_of_owner or self._sizes.total() + size > self._most:
                return False
            self._kept[key] = (owner, size, now + KEPT_SEC)
            self._sizes[owner] += size
            return True

    def clear(self) -> None:
        """Count nothing as stored."""
        with self._lock:
            self._kept.clear()
            self._sizes.clear()

    def _drop(self, key: str) -> None:
        if found := self._kept.pop(key, None):
            self._sizes -= Counter({found[0]: found[1]})


_budget = _Budget(32 << 20, most_of_owner=4 << 20)
