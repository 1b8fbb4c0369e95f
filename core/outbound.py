"""How this deployment connects to addresses that a user named: its egress guard and its certificate authorities."""

from __future__ import annotations

from django.conf import settings

from core.egress import EgressGuard, trusted_file


def guard() -> EgressGuard:
    return EgressGuard(allowed=tuple(settings.ALLOWED_PRIVATE_NETWORKS))


def trust_store() -> str | None:
    """Return the PEM file of the authorities to trust: the setting SSL_CERT_FILE, or else the system's."""
    return trusted_file(settings.SSL_CERT_FILE)


def private_networks_advice(*, staff: bool) -> str:
    """Return who can allow private networks, and how. Only `staff` get the setting."""
    if staff:
        return "ALLOWED_PRIVATE_NETWORKS (docs/operate/settings.md) allows them after a restart."
    return "The operator of this Pulsekeeper can allow them."
