"""The RDAP client as this deployment is set up."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from checks.guard import guard
from checks.probes.trust import find_trust_store
from checks.rdap import RdapClient
from core.egress import EgressGuard
from core.http import GuardedSession


def rdap_client() -> RdapClient:
    return _client(guard(), settings.SSL_CERT_FILE, settings.RDAP_BOOTSTRAP_URL)


@cache
def _client(guard: EgressGuard, ca_file: str | None, bootstrap_url: str) -> RdapClient:
    """One per process: it keeps the list of registries."""
    schemes = {"https", "http"} if bootstrap_url.startswith("http:") else {"https"}
    session = GuardedSession(guard, ca_file=ca_file or find_trust_store(), schemes=frozenset(schemes))
    return RdapClient(session, bootstrap_url)
