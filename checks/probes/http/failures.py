"""Why a transfer gave no whole response: libcurl's result as a reason code and a sentence."""

from __future__ import annotations

import pycurl

from checks.probes.curl import TOO_LARGE, explain_connection
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import BodyFault, Hop, Transfer
from checks.spec import ReasonCode
from checks.verdict import Failure, timed_out

_WEIRD_SERVER_REPLY = 8  # pycurl has no name for it
_NOT_HTTP_CODES = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, _WEIRD_SERVER_REPLY, TOO_LARGE})
_NOT_HTTP = (
    "The server's answer is not valid HTTP, or its headers are too large; check that a web server listens on that "
    "port, and what it sends."
)
_BODY_FAULTS = {
    BodyFault.LIE: Failure(
        ReasonCode.CONTENT_FAILURE,
        "The body cannot be decoded, because it is not in the Content-Encoding that the response declares; "
        "check the server's compression.",
    ),
    BodyFault.CUT: Failure(
        ReasonCode.PARTIAL_RESPONSE,
        "The response was cut short: its compressed body ends too early; "
        "check the application and the proxies before it.",
    ),
}


def explain(spec: HttpSpec, hop: Hop, transfer: Transfer) -> Failure | None:
    """Return why this hop gave no whole response, None if it gave one."""
    code = hop.code
    if code == pycurl.E_OK:
        return None if hop.headers_ended else _explain_broken(hop)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return timed_out(spec, _phase(hop, transfer))
    failure = explain_connection(transfer, code, hop.message, connected=bool(hop.connect_us), check_ssl=spec.check_ssl)
    if failure is not None:
        return failure
    if code in _NOT_HTTP_CODES:
        return Failure(ReasonCode.CONNECTION_FAILURE, _NOT_HTTP)
    if code == pycurl.E_URL_MALFORMAT:
        return Failure(ReasonCode.CONNECTION_FAILURE, "The URL cannot be used; check its spelling.")
    return _explain_broken(hop)


def explain_body(transfer: Transfer) -> Failure | None:
    """Return what is wrong with a body that is complete as far as HTTP can tell."""
    return None if transfer.body_fault is None else _BODY_FAULTS[transfer.body_fault]


def _phase(hop: Hop, transfer: Transfer) -> str:
    """Return what was waited for when time ran out, and where to look."""
    if not hop.connect_us:
        return "the connection was not established; check that the host runs, and the firewalls before it"
    if transfer.tls and not transfer.tls_established():
        return "the TLS handshake did not finish; check the server's load and its TLS settings"
    if not hop.ttfb_us:
        return "the server accepted the request but did not answer; check the application and its load"
    if not hop.headers_ended:
        return "the response headers did not end; check the application and its load"
    return f"the response (status {hop.status}) did not end; check the application, or raise the timeout"


def _explain_broken(hop: Hop) -> Failure:
    """Explain a connection that broke after it was established."""
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
