"""How this deployment connects to addresses that a user named: its egress guard and its certificate authorities."""

from __future__ import annotations

import ssl
from pathlib import Path

from django.conf import settings

from core.egress import EgressGuard

_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)


def guard() -> EgressGuard:
    return EgressGuard(allowed=tuple(settings.ALLOWED_PRIVATE_NETWORKS))


def trust_store() -> str | None:
    """Return the PEM file of the certificate authorities to trust: SSL_CERT_FILE, or else the system's.

    None if there is no such file. The system's is looked for because the wheel's libcurl looks where its build
    machine kept it. OpenSSL's environment variables do not count: the settings decide.
    """
    if settings.SSL_CERT_FILE:
        return str(settings.SSL_CERT_FILE)
    candidates = (ssl.get_default_verify_paths().openssl_cafile, *_USUAL_FILES)
    return next((name for name in candidates if Path(name).is_file()), None)
