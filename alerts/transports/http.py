"""Guarded requests to receivers, and descriptions of errors that contain neither addresses nor secrets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

import requests
from urllib3.exceptions import NameResolutionError

from core.http import BodyTooLarge, DeadlineExceeded, ForbiddenTarget, GuardedSession, UnencryptedTarget
from core.outbound import guard, trust_store
from core.text import quote
from notifications.outbox import SendResult

_QUOTED_CHARS = 200


_session = cache(GuardedSession)


def session(*, total_sec: float, max_body: int, schemes: frozenset[str], public: bool = True) -> GuardedSession:
    """Return a shared session behind the egress guard. `public`: also to public addresses."""
    behind = replace(guard(), public=public)
    return _session(behind, ca_file=trust_store(), schemes=schemes, total_sec=total_sec, max_body=max_body)


def post(url: str, *, body: bytes, headers: Mapping[str, str], total_sec: float, max_answer: int) -> SendResult:
    """Make one POST request without following redirects. Any 2xx status is a success."""
    guarded = session(total_sec=total_sec, max_body=max_answer, schemes=frozenset({"http", "https"}))
    try:
        response = guarded.post(url, data=body, headers=dict(headers), allow_redirects=False)
    except BodyTooLarge as error:
        # The status arrived before the body, and only the status matters.
        if error.response is None:
            return SendResult(delivered=False, detail=failure(error, seconds=total_sec))
        response = error.response
    except (requests.RequestException, UnicodeError) as error:  # UnicodeError: an invalid host name
        return SendResult(delivered=False, detail=failure(error, seconds=total_sec))
    if 200 <= response.status_code < 300:
        return SendResult(delivered=True, detail=f"The receiver answered {response.status_code}.")
    detail = answered(response)
    if 300 <= response.status_code < 400:
        detail = f"The receiver answered {response.status_code}; redirects of a webhook are not followed."
    return SendResult(delivered=False, detail=detail, retry=response.status_code != 410)


def failure(error: Exception, *, seconds: float) -> str:
    """Describe a failed request in a sentence. `seconds` is its time limit."""
    if isinstance(error, UnencryptedTarget):
        return "The receiver is not in a private network that the operator allows, so http is refused; use https."
    if isinstance(error, ForbiddenTarget):
        return "The receiver's address is private or reserved, and Pulsekeeper does not connect to it."
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
        return "The connection to the receiver broke before it answered."
    return f"The request to the receiver failed ({type(error).__name__})."


def answered(response: requests.Response) -> str:
    """Describe a response in a sentence: its status, and the start of its body."""
    body = response.content[: _QUOTED_CHARS * 8].decode("utf-8", "replace").strip()
    said = f": {quote(body, limit=_QUOTED_CHARS)}" if body else ""
    return f"The receiver answered {response.status_code}{said}."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and its causes. `requests` and urllib3 keep them in different attributes."""
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
