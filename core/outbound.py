"""How this deployment connects to addresses that a user named: its egress guard and its certificate authorities."""

from __future__ import annotations

from django.conf import settings

from core import private_networks
from core.egress import EgressGuard, parse_networks, trusted_file


def guard() -> EgressGuard:
    return EgressGuard(allowed=tuple(settings.ALLOWED_PRIVATE_NETWORKS))


def trust_store() -> str | None:
    """Return the PEM file of the authorities to trust: the setting SSL_CERT_FILE, or else the system's."""
    return trusted_file(settings.SSL_CERT_FILE)


def private_networks_advice(*, staff: bool) -> str:
    """Return who can allow private networks, and how. Only `staff` get the setting."""
    if not staff:
        return "The operator of this Pulsekeeper can allow private networks."
    if private_networks.answer_file() is not None:
        return f"{settings.BASE_URL}/private-networks allows private networks."
    return f"{private_networks.SETTING} (docs/operate/settings.md) allows private networks."


def allow_private_networks(*, allowed: bool) -> None:
    """Store the answer to whether checks may reach private networks. Raises OSError.

    It counts at once in this process. `up` restarts those that check.
    """
    path = private_networks.answer_file()
    assert path is not None
    private_networks.write(path, allowed=allowed)
    settings.ALLOWED_PRIVATE_NETWORKS = parse_networks(private_networks.networks(allowed=allowed))
