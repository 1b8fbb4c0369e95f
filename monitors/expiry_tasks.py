"""What workers do about certificates and registrations that run out."""

from __future__ import annotations

import logging

from celery import shared_task

from core.clock import utc_now
from core.db import release_connection
from monitors import expiry, registrations
from monitors.registrations import Lookup

logger = logging.getLogger(__name__)

LOOKUPS_PER_RUN = 20


@shared_task(name="monitors.tasks.refresh_registrations")
def refresh_registrations() -> None:
    """Look up what is due, one after the other. Runs that overlap share the work."""
    registrations.remove_unused(utc_now())
    for _ in range(LOOKUPS_PER_RUN):
        lookup = registrations.claim_lookup(utc_now())
        if lookup is None:
            return
        release_connection()
        _look_up(lookup)


@shared_task(name="monitors.tasks.warn_of_expiries")
def warn_of_expiries() -> None:
    """Note the certificates and registrations that come near their end."""
    expiry.warn_of_expiries(utc_now())


def _look_up(lookup: Lookup) -> None:
    # Here: what these import is of no use to the other workers, and takes memory in each.
    from checks.domains import top_level
    from checks.rdap import LookupFailed, NoRegistry, RegistryBusy
    from checks.registry import rdap_client

    try:
        expires_at = rdap_client().look_up(lookup.domain, now=utc_now())
    except RegistryBusy as refusal:
        suffix = top_level(lookup.domain)
        logger.warning("the registry of .%s is left alone for %s", suffix, refusal.retry_after)
        registrations.put_off(suffix, refusal.retry_after, error=str(refusal), now=utc_now())
    except NoRegistry as gap:
        registrations.record_unsupported(lookup, str(gap), now=utc_now())
    except LookupFailed as failure:
        logger.info("the lookup of %s failed: %s", lookup.domain, failure)
        registrations.record_failure(lookup, str(failure), now=utc_now())
    else:
        registrations.record_expiry(lookup, expires_at, now=utc_now())
