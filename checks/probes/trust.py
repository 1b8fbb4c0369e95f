"""Where the system keeps the certificate authorities it trusts.

The wheel's libcurl was built elsewhere and looks where its build machine kept them.
"""

from __future__ import annotations

import ssl
from pathlib import Path

_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)


def find_trust_store() -> str | None:
    """The system's file of authorities, None where there is none to be found (libcurl's own default then).

    OpenSSL's compiled-in place, not its environment variables: what a probe trusts is `SSL_CERT_FILE` of the
    settings, which the caller gives, or this.
    """
    for name in (ssl.get_default_verify_paths().openssl_cafile, *_USUAL_FILES):
        if Path(name).is_file():
            return name
    return None
