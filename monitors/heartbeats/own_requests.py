"""Send a ping and a request for a page to BASE_URL, as a job and a visitor do."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_network

import requests
from django.conf import settings

from core.db import release_connection
from core.egress import EgressGuard
from core.http import GuardedSession
from core.outbound import trust_store
from monitors.heartbeats import canary
from monitors.heartbeats.canary import Answer

PAGE = "/account/login/"
ANSWER_SEC = 4.0
"""Timeout of a request, from its connection to the end of its answer."""
AGAIN_AFTER_SEC = 1.0
"""A failed ping is sent once more, so that one lost packet does not count as evidence."""

# BASE_URL is the operator's own address, and often a private one.
_ANYWHERE = EgressGuard(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
_OWN_FAULTS = frozenset(
    {errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM}
)


def ask() -> None:
    """Send a ping and a request for a page to BASE_URL, and record the answers. Do nothing if that happens already."""
    begun = canary.begin(settings.BASE_URL)
    if begun is None:
        return
    release_connection()
    public_id, asked_at = begun
    with _session() as session:
        url = f"{settings.BASE_URL}/v1/heartbeats/{public_id}/ping"
        ping = _send(session, "POST", url, body=b'{"ok":true}')
        if ping.error is not None and not ping.is_unknown:
            time.sleep(AGAIN_AFTER_SEC)
            ping = _send(session, "POST", url, body=b'{"ok":true}')
        page = _send(session, "GET", settings.BASE_URL + PAGE)
    canary.record(asked_at, ping, page)


def _session() -> GuardedSession:
    return GuardedSession(_ANYWHERE, ca_file=trust_store(), total_sec=ANSWER_SEC)


def _send(session: GuardedSession, method: str, url: str, *, body: bytes | None = None) -> Answer:
    """Send a request and expect status 200, and `body` if passed."""
    start = time.monotonic()
    error, is_unknown = None, False
    try:
        response = session.request(method, url, allow_redirects=False)
    except (requests.RequestException, OSError) as failure:
        error, is_unknown = _reason(failure), _is_own_fault(failure)
    else:
        if response.status_code != 200:
            error = f"it was answered with status {response.status_code}"
        elif body is not None and response.content != body:
            error = "it was answered by something else"
    return Answer(int((time.monotonic() - start) * 1_000), error, is_unknown)


def _chain(failure: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it, which libraries keep in different places."""
    waiting, seen = [failure], set[int]()
    while waiting:
        error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        inner = (error.__cause__, error.__context__, getattr(error, "reason", None), *error.args)
        waiting += [each for each in inner if isinstance(each, BaseException)]


def _is_own_fault(failure: BaseException) -> bool:
    return any(
        error.errno == socket.EAI_AGAIN if isinstance(error, socket.gaierror) else error.errno in _OWN_FAULTS
        for error in _chain(failure)
        if isinstance(error, OSError)
    )


def _reason(failure: BaseException) -> str:
    """Return a short reason, without addresses."""
    errors = [error for error in _chain(failure) if isinstance(error, OSError) and error.strerror]
    if isinstance(failure, requests.Timeout):
        return f"no answer within {ANSWER_SEC:.0f} s"
    return f"{errors[-1].strerror}" if errors else type(failure).__name__
