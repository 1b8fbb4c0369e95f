"""Find status pages by slug or by their own domain.

A `PublishedPage` has all that a request needs before rendering. It is cached for LIFETIME_SEC. A write removes it from
the shared cache at once; local caches of other processes expire within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.utils.crypto import salted_hmac

from core.cache import load, store
from statuspages.models import StatusPage

LIFETIME_SEC = 10


@dataclass(frozen=True, slots=True)
class PublishedPage:
    """A published page. `lock` is empty without a password, and changes with the password."""

    page_id: int
    slug: str
    version: int
    domain: str | None
    lock: str


def find(address: str) -> PublishedPage | None:
    """Return the published page of a slug or domain, or None. Domains contain a dot."""
    key = _key(address)
    found = load(key, PublishedPage, seconds=LIFETIME_SEC)
    if found is not None:
        return found
    by = {"custom_domain": address} if "." in address else {"slug": address}
    page = StatusPage.objects.filter(published=True, owner__is_active=True, **by).first()
    if page is None:  # not cached: visitors can request any number of unknown addresses
        return None
    lock = page.password_hash and salted_hmac("pulsekeeper.status-pages", page.password_hash).hexdigest()
    found = PublishedPage(page.pk, page.slug, page.version, page.custom_domain, lock)
    store(key, found, seconds=LIFETIME_SEC)
    return found


def forget(*addresses: str | None) -> None:
    cache.delete_many([_key(address) for address in addresses if address])


def own_hosts() -> set[str]:
    """Return the host names of the deployment itself."""
    return {
        urlsplit(settings.BASE_URL).hostname or "",
        *(host.lower() for host in settings.ALLOWED_HOSTS if host != "*"),
    }


def _key(address: str) -> str:
    return f"status-page-at:{address}"
