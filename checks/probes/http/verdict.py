"""Judge an http response: the expected status, the content coding, and the content rules. Pure."""

from __future__ import annotations

from checks.evidence import Mask
from checks.probes.http.rules import find_broken_rule
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Response
from checks.spec import ReasonCode
from checks.verdict import Failure
from core.text import quote

# What a status means, and where to look.
_STATUS_HINTS = {
    401: ("the request was not authorised", "check the credentials in the monitor's request headers"),
    403: ("the request was forbidden", "allow Pulsekeeper's requests, or check the monitor's request headers"),
    404: ("the page was not found", "check the path of the monitor's URL"),
    405: ("the method is not allowed", "choose another method for the monitor"),
    407: ("a proxy asks for authorisation", "check the proxy before the server"),
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
            f"The body is in the content coding {quote(response.unknown_coding, limit=40)}, which nobody "
            f"asked for and Pulsekeeper cannot undo. {broken}"
        )
    return Failure(ReasonCode.CONTENT_FAILURE, broken)
