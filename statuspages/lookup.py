"""Where a page is found: by its slug below this deployment's address, and by a domain of its own.

What a request has to know before anything is rendered or looked up in a cache is a `Place`. It is kept for LIFETIME,
also that there is none; whoever changes a page forgets it at once, but for the copies that processes keep for moments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache as remembered
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.utils.crypto import salted_hmac

from core.cache import load, store
from statuspages.models import StatusPage

LIFETIME_SEC = 10


@dataclass(frozen=True, slots=True)
class Place:
    """A published page. `lock` is empty where it has no password; else it changes with the password."""

    page_id: int
    slug: str
    version: int
    domain: str | None
    lock: str


def find(address: str) -> Place | None:
    """The published page of a slug, or of a domain, which has a dot in it."""
    key = _key(address)
    found = load(key, Place, seconds=LIFETIME_SEC)
    if found is None:
        found = _look_up(address)
        if (
            found is not None
        ):  # an unknown address is cheap to look up, and visitors can invent any number of them
            store(key, found, seconds=LIFETIME_SEC)
    return found


def forget(addresses: Iterable[str]) -> None:
    cache.delete_many([_key(address) for address in addresses])


def own_hosts() -> frozenset[str]:
    """The names of this deployment itself, which are no status page's."""
    return _own_hosts(settings.BASE_URL, tuple(settings.ALLOWED_HOSTS))


@remembered
def _own_hosts(base_url: str, allowed: tuple[str, ...]) -> frozenset[str]:
    return frozenset({urlsplit(base_url).hostname or "", *(host.lower() for host in allowed if host != "*")})


def page_url(page: StatusPage | Place, domain: str | None) -> str:
    """The address people know it by: that of its own domain, where it has one."""
    if domain is None:
        return f"{settings.BASE_URL}/status/{page.slug}"
    return f"{urlsplit(settings.BASE_URL).scheme}://{domain}/"


def _key(address: str) -> str:
    return f"status-place:{address}"


def _look_up(address: str) -> Place | None:
    by = {"custom_domain": address} if "." in address else {"slug": address}
    page = StatusPage.objects.filter(published=True, owner__is_active=True, **by).first()
    if page is None:
        return None
    lock = page.password_hash and salted_hmac("pulsekeeper.status-pages", page.password_hash).hexdigest()
    return Place(page.pk, page.slug, page.version, page.custom_domain, lock)
