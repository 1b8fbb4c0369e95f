"""What went wrong with a request of ours, in words that name neither the address nor anything secret."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import requests
from urllib3.exceptions import NameResolutionError

from core.http import BodyTooLarge, DeadlineExceeded, ForbiddenTarget
from core.text import quote

_QUOTED_CHARS = 200


def failure(error: Exception, *, seconds: float) -> str:
    """A sentence. `seconds` are those that the request had."""
    if isinstance(error, ForbiddenTarget):
        return "The receiver's address is private or reserved; Pulsekeeper does not connect to such."
    if isinstance(error, DeadlineExceeded | requests.Timeout):
        return f"The receiver did not answer within {seconds:g} seconds."
    if isinstance(error, BodyTooLarge):
        return "The receiver's answer is too long."
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"The receiver's certificate is not valid: {cause.verify_message.rstrip('.')}."
    if isinstance(error, requests.exceptions.SSLError):
        return "No TLS connection to the receiver could be made."
    if any(isinstance(cause, NameResolutionError) for cause in causes):
        return "The receiver's host name has no address."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "The receiver refused the connection."
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return "The receiver's address cannot be used."
    if isinstance(error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError):
        return "The connection to the receiver broke off before its answer came."
    return f"The request to the receiver failed ({type(error).__name__})."


def answered(response: requests.Response) -> str:
    """A sentence about an answer: its status, and how its body begins."""
    body = response.content[: _QUOTED_CHARS * 8].decode("utf-8", "replace").strip()
    said = f": {quote(body, limit=_QUOTED_CHARS)}" if body else ""
    return f"The receiver answered {response.status_code}{said}."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it was raised for, as far as `requests` and urllib3 tell, each in its own way."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        related = [found.__cause__, found.__context__, getattr(found, "reason", None), *found.args]
        waiting += [other for other in related if isinstance(other, BaseException)]
