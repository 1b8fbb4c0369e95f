"""Why a transfer gave no whole response: libcurl's result as a reason code and a sentence."""

from __future__ import annotations

import pycurl

from checks.probes.faults import (
    CERTIFICATE_WANTED,
    errno_of,
    explain_certificate,
    explain_errno,
    explain_handshake,
    insecure,
)
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Response, Transfer
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault, timed_out

# pycurl has no names for these.
_WEIRD_SERVER_REPLY, _NO_CLIENT_CERTIFICATE, _TOO_LARGE = 8, 98, 100
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
# During a handshake, libcurl met a field of the certificate that is longer than it takes.
_TOO_LONG_CODES = frozenset({_TOO_LARGE, pycurl.E_OUT_OF_MEMORY})
# These say something about this worker and nothing about the target.
_OWN_CODES = frozenset(
    {pycurl.E_OUT_OF_MEMORY, pycurl.E_FAILED_INIT, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_WRITE_ERROR}
)
_NOT_HTTP_CODES = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, _WEIRD_SERVER_REPLY, _TOO_LARGE})
_NOT_HTTP = Failure(
    ReasonCode.CONNECTION_FAILURE,
    "The server's answer is not valid HTTP, or its headers are too large; check that a web server listens on that "
    "port, and what it sends.",
)


def explain(spec: HttpSpec, transfer: Transfer) -> Failure | None:
    """Return why this request got no whole response, None if it got one."""
    response, code = transfer.response, transfer.response.code
    if code == pycurl.E_OK:
        return None if response.headers_ended else _explain_broken(response)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return timed_out(spec, _phase(response, transfer))
    if code == pycurl.E_COULDNT_CONNECT:
        return _explain_connect(transfer)
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return Failure(ReasonCode.DNS_FAILURE, "The name of the target could not be resolved; check its DNS records.")
    # TLS 1.3 asks for a client certificate when the handshake is through, which libcurl calls a broken read.
    late_refusal = code == pycurl.E_RECV_ERROR and CERTIFICATE_WANTED in response.message.lower()
    in_handshake = transfer.tls and response.connect_us and not transfer.tls_established()
    if code in _TLS_CODES or late_refusal or (code in _TOO_LONG_CODES and in_handshake):
        return insecure(_explain_tls(transfer), check_ssl=spec.check_ssl)
    if code in _OWN_CODES:
        return own_fault(pycurl.easy_strerror(code))
    if code in _NOT_HTTP_CODES:
        return _NOT_HTTP
    if code == pycurl.E_URL_MALFORMAT:
        return Failure(ReasonCode.CONNECTION_FAILURE, "The URL cannot be used; check its spelling.")
    return _explain_broken(response)


def _phase(response: Response, transfer: Transfer) -> str:
    """Return what was waited for when time ran out, and where to look."""
    if not response.connect_us:
        return "the connection was not established; check that the host runs, and the firewalls before it"
    if transfer.tls and not transfer.tls_established():
        return "the TLS handshake did not finish; check the server's load and its TLS settings"
    if not response.ttfb_us:
        return "the server accepted the request but did not answer; check the application and its load"
    if not response.headers_ended:
        return "the response headers did not end; check the application and its load"
    return f"the response (status {response.status}) did not end; check the application, or raise the timeout"


def _explain_connect(transfer: Transfer) -> Failure:
    if not transfer.opened_socket and transfer.socket_error is not None:
        return explain_errno(transfer.socket_error.errno or 0)
    if not transfer.opened_socket and transfer.refused_address:
        return BLOCKED
    number = int(transfer.easy.getinfo(pycurl.OS_ERRNO))
    return explain_errno(errno_of(OSError(number, ""), "" if transfer.address is None else transfer.address[0]))


def _explain_tls(transfer: Transfer) -> str:
    code, message = transfer.response.code, transfer.response.message
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return explain_certificate(int(transfer.easy.getinfo(pycurl.SSL_VERIFYRESULT)), message)
    if code in _TOO_LONG_CODES:
        return "the server's certificate is too large to be read; install a smaller one"
    return explain_handshake(CERTIFICATE_WANTED if code == _NO_CLIENT_CERTIFICATE else message)


def _explain_broken(response: Response) -> Failure:
    """Explain a connection that broke after it was established."""
    if response.message.startswith("Too large response headers"):  # a total that shares a code with resets
        return _NOT_HTTP
    if response.ttfb_us and response.status >= 200:
        where = "before its body was complete" if response.headers_ended else "before its headers were complete"
        return Failure(
            ReasonCode.PARTIAL_RESPONSE,
            f"The response (status {response.status}) was cut short: the connection ended {where}; "
            "check the application and the proxies before it.",
        )
    return Failure(
        ReasonCode.CONNECTION_FAILURE,
        "The server closed the connection without an answer; check that it serves http here, and its error log.",
    )
