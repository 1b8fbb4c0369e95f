"""What went wrong on the way to a response, in our terms: libcurl's result code to reason code and sentence."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from functools import lru_cache
from ssl import cert_time_to_seconds

import pycurl

from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import BodyFault, Hop, Transfer
from checks.spec import ReasonCode
from checks.verdict import Failure

# X509_V_ERR_… of OpenSSL's x509_vfy.h, as CURLINFO_SSL_VERIFYRESULT gives them.
_NO_ISSUER = (
    "the certificate's issuer is unknown, or the server leaves out an intermediate certificate; "
    "install the full chain"
)
_CERTIFICATE_FAULTS = {
    9: "the certificate is not valid yet; check its dates and the server's clock",
    10: "the certificate has expired; renew it",
    18: "the certificate is self-signed, so nobody vouches for it; install one of a public authority",
    19: "the certificate comes from a self-signed authority that is not trusted; install one of a public authority",
    20: _NO_ISSUER,
    21: _NO_ISSUER,
    23: "the certificate was revoked; replace it",
    24: "an authority in the certificate's chain may not issue certificates; install one of a public authority",
    26: "the certificate is not meant for servers; install one that is",
    28: "the certificate's authority is rejected for servers; install one of a public authority",
    62: "the certificate was issued for another host name; check the URL, or add the name to the certificate",
    64: "the certificate was issued for another address; check the URL, or add the address to the certificate",
    66: "the certificate's key is too weak; replace it",
    67: "the key of an authority in the certificate's chain is too weak; replace the certificate",
    68: "the certificate's signature is too weak; replace it",
}
# Results that pycurl has no name for.
_WEIRD_SERVER_REPLY = 8
_NO_CLIENT_CERTIFICATE = 98
_TLS_CODES = frozenset(
    {
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CIPHER,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_SSL_INVALIDCERTSTATUS,
        pycurl.E_SSL_ISSUER_ERROR,
        _NO_CLIENT_CERTIFICATE,
    }
)
_TOO_LARGE = 100
# During a handshake, libcurl met a field of the certificate that is longer than it takes.
_TOO_LONG_CODES = frozenset({_TOO_LARGE, pycurl.E_OUT_OF_MEMORY})
_NOT_HTTP_CODES = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, _WEIRD_SERVER_REPLY, _TOO_LARGE})
_NOT_HTTP = (
    "The server's answer is not valid HTTP, or its headers are too large; check that a web server listens on that "
    "port, and what it sends."
)
_CERTIFICATE_WANTED = "alert certificate required"
# What says something about this worker and nothing about the target.
_OWN_CODES = frozenset(
    {pycurl.E_OUT_OF_MEMORY, pycurl.E_FAILED_INIT, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_WRITE_ERROR}
)

_CONNECT_FAULTS = {
    errno.ECONNREFUSED: "the connection was refused; nothing seems to listen on that port, so check the server",
    errno.ECONNRESET: "the connection was reset; check the server and the firewalls before it",
    errno.EHOSTUNREACH: "the host cannot be reached; check that it runs, and the routes to it",
    errno.ENETUNREACH: "its network cannot be reached; check the addresses in its DNS, and the routes to them",
    errno.ETIMEDOUT: "the connection attempt got no answer; check that the host runs, and the firewalls before it",
}


@lru_cache(maxsize=4096)
def parse_certificate_end(text: str) -> datetime | None:
    """`Jan  5 09:34:43 2018 GMT` to a time; None for what no certificate should say."""
    try:
        return datetime.fromtimestamp(cert_time_to_seconds(text), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def timed_out(spec: HttpSpec, doing: str) -> Failure:
    return Failure(ReasonCode.TIMEOUT, f"No result within {spec.timeout_ms} ms: {doing}.")


def own_fault(what: str) -> Failure:
    """The check could not be made, and the target is not to blame."""
    return Failure(ReasonCode.WORKER_LOST, f"Pulsekeeper could not run this check: {what}.")


def _phase(hop: Hop, transfer: Transfer) -> str:
    """What was waited for when time ran out, and where to look."""
    if not hop.connect_us:
        return "the connection was not established; check that the host runs, and the firewalls before it"
    if transfer.https and not transfer.tls_stood():
        return "the TLS handshake did not finish; check the server's load and its TLS settings"
    if not hop.ttfb_us:
        return "the server accepted the request but did not answer; check the application and its load"
    if not hop.headers_ended:
        return "the response headers did not end; check the application and its load"
    return f"the response (status {hop.status}) did not end; check the application, or raise the timeout"


def _tls_fault(hop: Hop, transfer: Transfer) -> str:
    if hop.code == pycurl.E_PEER_FAILED_VERIFICATION:
        fault = _CERTIFICATE_FAULTS.get(transfer.verify_result())
        if fault is not None:
            return fault
        if "subject name" in hop.message or "does not match" in hop.message:
            return _CERTIFICATE_FAULTS[62]
        return "the certificate could not be verified; check it and its chain"
    if hop.code in _TOO_LONG_CODES:
        return "the server's certificate is too large to be read; install a smaller one"
    message = hop.message.lower()
    if "wrong version number" in message or "packet length" in message:
        return "the server does not speak TLS on this port; check the scheme and the port of the URL"
    if "protocol version" in message or "unsupported protocol" in message:
        return "the server offers no TLS version from 1.2 on; update it"
    if "handshake failure" in message or "no shared cipher" in message:
        return "the server and Pulsekeeper share no way of encryption; check the server's TLS settings"
    if "unrecognized name" in message:
        return "the server has no certificate for this host name; check its virtual hosts"
    if hop.code == _NO_CLIENT_CERTIFICATE or _CERTIFICATE_WANTED in message or "bad certificate" in message:
        return (
            "the server asks for a client certificate, which Pulsekeeper has none of; exempt the URL from it"
        )
    if "eof" in message or "reset" in message:
        return "the server ended the connection during the TLS handshake; check its TLS settings"
    return "the TLS handshake failed; check the server's TLS settings"


def _explain_connect(transfer: Transfer) -> Failure:
    if transfer.refused_address and not transfer.opened_socket and transfer.socket_error is None:
        return Failure(
            ReasonCode.BLOCKED_TARGET,
            "The target's address is private or reserved, and Pulsekeeper opens no connection to such; "
            "use a public address.",
        )
    if transfer.socket_error is not None and not transfer.opened_socket:
        if transfer.socket_error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
            return own_fault(os.strerror(transfer.socket_error.errno))
        return Failure(
            ReasonCode.CONNECTION_FAILURE,
            "No connection: its kind of address is not supported here; give its name an IPv4 address.",
        )
    fault = _CONNECT_FAULTS.get(
        transfer.os_errno(), "the connection failed; check the server and the routes to it"
    )
    return Failure(ReasonCode.CONNECTION_FAILURE, f"No connection: {fault}.")


def explain_body(transfer: Transfer) -> Failure | None:
    """What is wrong with a body that came whole as far as HTTP can tell."""
    match transfer.body_fault:
        case None:
            return None
        case BodyFault.LIE:
            return Failure(
                ReasonCode.CONTENT_FAILURE,
                "The body cannot be decoded, because it is not in the Content-Encoding that the response declares; "
                "check the server's compression.",
            )
        case BodyFault.CUT:
            return Failure(
                ReasonCode.PARTIAL_RESPONSE,
                "The response was cut short: its compressed body ends too early; "
                "check the application and the proxies before it.",
            )


def _explain_broken(hop: Hop) -> Failure:
    """A connection that broke after it stood."""
    if hop.message.startswith("Too large response headers"):  # a total that shares a code with resets
        return Failure(ReasonCode.CONNECTION_FAILURE, _NOT_HTTP)
    if hop.ttfb_us and hop.status >= 200:
        where = "before its body was complete" if hop.headers_ended else "amid its headers"
        return Failure(
            ReasonCode.PARTIAL_RESPONSE,
            f"The response (status {hop.status}) was cut short: the connection ended {where}; "
            "check the application and the proxies before it.",
        )
    return Failure(
        ReasonCode.CONNECTION_FAILURE,
        "The server closed the connection without an answer; check that it serves http here, and its error log.",
    )


def explain(spec: HttpSpec, hop: Hop, transfer: Transfer) -> Failure | None:
    """Why this hop gave no whole response, None when it gave one."""
    code = hop.code
    if code == pycurl.E_OK:
        return None if hop.headers_ended else _explain_broken(hop)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return timed_out(spec, _phase(hop, transfer))
    if code == pycurl.E_COULDNT_CONNECT:
        return _explain_connect(transfer)
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return Failure(
            ReasonCode.DNS_FAILURE, "The name of the target could not be resolved; check its DNS records."
        )
    # TLS 1.3 asks for a client certificate when the handshake is through, which libcurl calls a broken read.
    late_refusal = code == pycurl.E_RECV_ERROR and _CERTIFICATE_WANTED in hop.message.lower()
    in_handshake = transfer.https and hop.connect_us and not transfer.tls_stood()
    if code in _TLS_CODES or late_refusal or (code in _TOO_LONG_CODES and in_handshake):
        fault = _tls_fault(hop, transfer)
        if spec.check_ssl:
            return Failure(ReasonCode.TLS_FAILURE, f"SSL problem: {fault}.")
        return Failure(ReasonCode.CONNECTION_FAILURE, f"No secure connection: {fault}.")
    if code in _NOT_HTTP_CODES:
        return Failure(ReasonCode.CONNECTION_FAILURE, _NOT_HTTP)
    if code == pycurl.E_URL_MALFORMAT:
        return Failure(ReasonCode.CONNECTION_FAILURE, "The URL cannot be used; check its spelling.")
    if code in _OWN_CODES:
        return own_fault(pycurl.easy_strerror(code))
    return _explain_broken(hop)
