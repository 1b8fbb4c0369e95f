"""Judge an http request: why it got no whole response, else its status, its content coding and its content rules."""

from __future__ import annotations

from dataclasses import replace

import pycurl

from checks.evidence import Mask
from checks.probes.faults import (
    BY_NETWORK,
    CERTIFICATE_WANTED,
    errno_of,
    explain_certificate,
    explain_errno,
    explain_handshake,
    insecure,
)
from checks.probes.http.rules import find_broken_rule
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Response, Transfer
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault, timed_out
from core.text import quote

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
# What a status means, and where to look.
_STATUS_HINTS = {
    401: ("the request was not authorised", "check the credentials in the monitor's request headers"),
    403: ("the request was forbidden", "allow Pulsekeeper's requests, or check the monitor's request headers"),
    404: ("the page was not found", "check the path of the monitor's URL"),
    405: ("the method is not allowed", "choose another method for the monitor"),
    407: ("a proxy asks for authorisation", "check the proxy in front of the server"),
    408: ("the server gave up waiting", "check the server's load"),
    410: ("the page is gone", "check the path of the monitor's URL"),
    421: ("the server does not serve this host", "check the host of the monitor's URL and its virtual hosts"),
    429: ("the server limits how often it may be asked", "raise the monitor's interval or the server's limit"),
    500: ("the server met an error", "check the server's error log"),
    501: ("the server does not know the method", "choose another method for the monitor"),
    502: ("a gateway got no valid answer behind it", "check the application behind the gateway"),
    503: ("the service is unavailable", "check whether it is overloaded or under maintenance"),
    504: ("a gateway got no answer behind it in time", "check the application behind the gateway"),
}


def explain(spec: HttpSpec, transfer: Transfer) -> Failure | None:
    """Return why this request got no whole response, None if it got one."""
    response, code = transfer.response, transfer.response.code
    if response.bad_status_line:
        return _NOT_HTTP
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
    is_by_network = int(transfer.easy.getinfo(pycurl.OS_ERRNO)) in BY_NETWORK
    return replace(_explain_broken(response), by_network=is_by_network)


def _phase(response: Response, transfer: Transfer) -> str:
    """Return what was waited for when time ran out, and where to look."""
    if not response.connect_us:
        return "the connection was not established; check that the host runs, and the firewalls in front of it"
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
            "check the application and the proxies in front of it.",
        )
    return Failure(
        ReasonCode.CONNECTION_FAILURE,
        "The server closed the connection without an answer; check that it serves http here, and its error log.",
    )


def _advice(status: int) -> str:
    if status < 400:
        return "set the expected status, or whether redirects are followed, to what you mean"
    return "check the server's error log" if status >= 500 else "check the monitor's URL, method and headers"


def expects(spec: HttpSpec, status: int) -> bool:
    """Return whether a final status passes. Without an expected one, 200 to 399 do."""
    if spec.expect_status is not None:
        return status == spec.expect_status
    return 200 <= status < (300 if spec.only_2xx else 400)


def _wrong_status(spec: HttpSpec, status: int) -> str:
    hint = _STATUS_HINTS.get(status)
    answered = f"Answered with status {status}" + (f" ({hint[0]})" if hint else "")
    if spec.expect_status is not None:
        wanted = f"the expected {spec.expect_status}"
    else:
        wanted = "2xx" if spec.only_2xx else "2xx or 3xx"
    return f"{answered} instead of {wanted}; {hint[1] if hint else _advice(status)}."


def find_failure(spec: HttpSpec, response: Response) -> Failure | None:
    """Return what is wrong with a response that came whole: the status comes first, then the coding and the rules."""
    if not expects(spec, response.status):
        return Failure(ReasonCode.HTTP_FAILURE, _wrong_status(spec, response.status))
    if response.fault is not None or not spec.rules:
        return response.fault
    broken = find_broken_rule(
        spec.rules,
        response.body or b"",
        content_type=response.content_type,
        over_cap=response.over_cap,
        mask=lambda text: Mask(spec.headers).own(text),
    )
    if broken is None:
        return None
    if response.unknown_coding is not None:
        broken = (
            f"The body is in the content coding {quote(response.unknown_coding, limit=40)}, which was "
            f"not requested and cannot be decoded. {broken}"
        )
    return Failure(ReasonCode.CONTENT_FAILURE, broken)
