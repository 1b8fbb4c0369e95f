"""Reasons of failed connections as sentences, for all protocols: by errno, and by OpenSSL's error. Pure."""

from __future__ import annotations

import errno
import os

from checks.spec import ReasonCode
from checks.verdict import Failure, own_fault

# X509_V_ERR_… of OpenSSL's x509_vfy.h, as CURLINFO_SSL_VERIFYRESULT and `SSLCertVerificationError.verify_code` are.
_TRUST = "set the monitor's CA certificate (ca_certificate)"
_NO_ISSUER = (
    "the certificate's issuer is unknown, or the server leaves out an intermediate certificate; install the full "
    f"chain, or for a private authority {_TRUST}"
)
_OTHER_HOST = 62
_CERTIFICATE_FAULTS = {
    9: "the certificate is not valid yet; check its dates and the server's clock",
    10: "the certificate has expired; renew it",
    18: f"the certificate is self-signed; install one of a public authority, or {_TRUST}",
    19: f"the certificate comes from an authority that is not trusted; install one of a public authority, or {_TRUST}",
    20: _NO_ISSUER,
    21: _NO_ISSUER,
    23: "the certificate was revoked; replace it",
    24: "an authority in the certificate's chain may not issue certificates; install one of a public authority",
    26: "the certificate is not meant for servers; install one that is",
    28: "the certificate's authority is rejected for servers; install one of a public authority",
    _OTHER_HOST: "the certificate was issued for another host name; check the URL, or add the name to the certificate",
    64: "the certificate was issued for another address; check the URL, or add the address to the certificate",
    66: "the certificate's key is too weak; replace it",
    67: "the key of an authority in the certificate's chain is too weak; replace the certificate",
    68: "the certificate's signature is too weak; replace it",
}
CERTIFICATE_WANTED = "alert certificate required"
# By words of the message, of libcurl or of OpenSSL.
_HANDSHAKE_FAULTS = {
    ("wrong version number", "packet length"): (
        "the server does not speak TLS on this port; check the scheme and the port of the URL"
    ),
    ("protocol version", "unsupported protocol"): "the server offers no TLS version from 1.2 on; update it",
    ("handshake failure", "no shared cipher"): (
        "the server and Pulsekeeper have no encryption in common; check the server's TLS settings"
    ),
    ("unrecognized name",): "the server has no certificate for this host name; check its virtual hosts",
    (CERTIFICATE_WANTED, "bad certificate"): (
        "the server requires a client certificate, which Pulsekeeper does not support; exempt the URL from it"
    ),
    ("excessive message size",): "the server's certificate is too large to be read; install a smaller one",
    ("eof", "reset"): "the server ended the connection during the TLS handshake; check its TLS settings",
}
CONNECT_FAULTS = {
    errno.ECONNREFUSED: "the connection was refused; nothing seems to listen on that port, so check the server",
    errno.ECONNRESET: "the connection was reset; check the server and the firewalls in front of it",
    errno.EACCES: "a firewall rejected the connection; check the firewalls in front of the server",
    errno.EHOSTUNREACH: "the host cannot be reached; check that it runs, and the routes to it",
    errno.ENETUNREACH: "its network cannot be reached; check the addresses in its DNS, and the routes to them",
    errno.EAFNOSUPPORT: "its kind of address is not supported here; give its name an IPv4 address",
    errno.ETIMEDOUT: "the connection attempt got no answer; check that the host runs, and the firewalls in front of it",
}
BY_NETWORK = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT})
"""No answer came. A router's ICMP error counts, too: it may be the one that lost its uplink."""
# These say something about this worker and nothing about the target.
OWN_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EADDRNOTAVAIL})


def errno_of(error: OSError, address: str) -> int:
    """Return the errno of a failed connection. Where IPv6 is switched off, each address of it is "not available"."""
    if error.errno == errno.EADDRNOTAVAIL and ":" in address:
        return errno.EAFNOSUPPORT
    return error.errno or errno.EIO


def explain_errno(number: int) -> Failure:
    """Return why no socket could be opened or connected."""
    if number in OWN_ERRORS:
        return own_fault(os.strerror(number))
    fault = CONNECT_FAULTS.get(number, "the connection failed; check the server and the routes to it")
    return Failure(ReasonCode.CONNECTION_FAILURE, f"No connection: {fault}.", by_network=number in BY_NETWORK)


def explain_certificate(verify_code: int, message: str) -> str:
    """Return why a certificate was refused. `verify_code` is an X509_V_ERR_…"""
    if (fault := _CERTIFICATE_FAULTS.get(verify_code)) is not None:
        return fault
    if "subject name" in message or "does not match" in message:
        return _CERTIFICATE_FAULTS[_OTHER_HOST]
    return "the certificate could not be verified; check it and its chain"


def explain_handshake(message: str) -> str:
    """Return why a TLS handshake failed, except by the certificate. `message` is libcurl's or OpenSSL's."""
    message = message.lower()
    for words, fault in _HANDSHAKE_FAULTS.items():
        if any(word in message for word in words):
            return fault
    return "the TLS handshake failed; check the server's TLS settings"


def insecure(fault: str, *, check_ssl: bool) -> Failure:
    """Return the failure of a connection that TLS cannot protect."""
    if check_ssl:
        return Failure(ReasonCode.TLS_FAILURE, f"SSL problem: {fault}.")
    return Failure(ReasonCode.CONNECTION_FAILURE, f"No secure connection: {fault}.")
