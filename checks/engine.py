"""The probe engine as this deployment is set up."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from checks.guard import guard
from checks.probes import ProbeEngine
from checks.probes.resolver import Resolver


@cache
def probe_engine() -> ProbeEngine:
    """One per process: it keeps its DNS cache and its handles between batches."""
    return ProbeEngine(guard(), settings.SSL_CERT_FILE, resolver=Resolver(settings.DNS_SERVERS))
