"""Why a transfer gave no whole response: libcurl's result as a reason code and a sentence."""

from __future__ import annotations

import pycurl

from checks.probes.curl import TOO_LARGE, explain_connection
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Response, Transfer
from checks.spec import ReasonCode
from checks.verdict import Failure, timed_out

_WEIRD_SERVER_REPLY = 8  # pycurl has no name for it
_NOT_HTTP_CODES = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, _WEIRD_SERVER_REPLY, TOO_LARGE})
_NOT_HTTP = (
    "The server's answer is not valid HTTP, or its headers are too large; check that a web server listens on that "
    "port, and what it sends."
)


def explain(spec: HttpSpec, transfer: Transfer) -> Failure | None:
    """Return why this request got no whole response, None if it got one."""
    response, code = transfer.response, transfer.response.code
    if code == pycurl.E_OK:
        return None if response.headers_ended else _explain_broken(response)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return timed_out(spec, _phase(response, transfer))
    failure = explain_connection(
        transfer, code, response.message, connected=bool(response.connect_us), check_ssl=spec.check_ssl
    )
    if failure is not None:
        return failure
    if code in _NOT_HTTP_CODES:
        return Failure(ReasonCode.CONNECTION_FAILURE, _NOT_HTTP)
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


def _explain_broken(response: Response) -> Failure:
    """Explain a connection that broke after it was established."""
    if response.message.startswith("Too large response headers"):  # a total that shares a code with resets
        return Failure(ReasonCode.CONNECTION_FAILURE, _NOT_HTTP)
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
