"""One line for each request, and the id by which all lines of a request are found."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core import logs
from core.addresses import client_address, is_from_trusted_proxy
from core.ids import random_text

logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
_SANE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{7,63}")
_LONGEST_PATH = 200
# Machines ask for them every few seconds, for ever.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})

Answer = Callable[[HttpRequest], HttpResponseBase]


def trusted_scheme(get_response: Answer) -> Answer:
    """What a proxy of TRUSTED_PROXIES says of the scheme counts, and nobody else's word.

    SECURE_PROXY_SSL_HEADER would take it from everybody.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        if is_forwarded_https(request.META):
            request.META["wsgi.url_scheme"] = "https"
        return get_response(request)

    return answer


def is_forwarded_https(meta: Mapping[str, Any]) -> bool:
    """Whether the client spoke TLS with a proxy of ours; `meta` is that of a request, or a WSGI environ."""
    return meta.get("HTTP_X_FORWARDED_PROTO") == "https" and is_from_trusted_proxy(meta)


def told(get_response: Answer) -> Answer:
    """Gives the request its id, and writes its line: who asked for what, what came of it, how long it took.

    It stands below what is asked for by crowds, or thousands of times a second: pings, status pages, static files.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        start = time.perf_counter()
        with logs.bound(request_id=_request_id(request)) as fields:
            response = get_response(request)
            response[HEADER] = fields["request_id"]
            level = logging.DEBUG if request.path_info in _QUIET else logging.INFO
            if logger.isEnabledFor(level):
                _tell(request, response, level=level, seconds=time.perf_counter() - start)
        return response

    return answer


def _request_id(request: HttpRequest) -> str:
    given = request.META.get("HTTP_X_REQUEST_ID", "")
    if given and _SANE.fullmatch(given) and is_from_trusted_proxy(request.META):
        return str(given)
    return random_text(10)


def _tell(request: HttpRequest, response: HttpResponseBase, *, level: int, seconds: float) -> None:
    fields = {
        "method": request.method,
        "path": request.path[:_LONGEST_PATH],
        "status": response.status_code,
        "duration_ms": round(seconds * 1000, 1),
        "client": str(client_address(request)),
    }
    # Whom Django's sessions found, if anybody asked: to look now would be a query. The API binds its callers.
    person = getattr(request, "_cached_user", None)
    if person is not None and person.is_authenticated:
        fields["user"] = person.public_id
    logger.log(level, "request", extra=fields)
