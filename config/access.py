"""The request log: one line per request, and an id in all log lines of the request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from config.routes import ROUTE, label_of
from core import logs
from core.addresses import address_of, is_from_trusted_proxy
from core.ids import random_text

logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
_VALID_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{7,63}")
_MAX_PATH = 200
# Polled by machines every few seconds.
_QUIET = frozenset({"/readyz"})

Handler = Callable[[HttpRequest], HttpResponseBase]


def trusted_scheme(get_response: Handler) -> Handler:
    """Accept X-Forwarded-Proto from TRUSTED_PROXIES. SECURE_PROXY_SSL_HEADER would accept it from any client."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if is_forwarded_https(request.META):
            request.META["wsgi.url_scheme"] = "https"
        return get_response(request)

    return middleware


def is_forwarded_https(meta: Mapping[str, Any]) -> bool:
    """Return whether the client used TLS to a trusted proxy. `meta` is request.META or a WSGI environ."""
    return meta.get("HTTP_X_FORWARDED_PROTO") == "https" and is_from_trusted_proxy(meta)


def log_requests(get_response: Handler) -> Handler:
    """Assign the request id, note the route, and log method, path, status, duration and caller.

    Pings, metrics, status pages and static files are answered by middleware above it: they are too frequent to log.
    """

    def middleware(request: HttpRequest) -> HttpResponseBase:
        start = time.perf_counter()
        with logs.bound(request_id=_request_id(request)) as fields:
            response = get_response(request)
            response[HEADER] = fields["request_id"]
            if request.resolver_match is not None:
                request.META[ROUTE] = label_of(request.resolver_match.route)
            level = logging.DEBUG if request.path_info in _QUIET else logging.INFO
            if logger.isEnabledFor(level):
                _log(request, response, level=level, seconds=time.perf_counter() - start)
        return response

    return middleware


def _request_id(request: HttpRequest) -> str:
    given = request.META.get("HTTP_X_REQUEST_ID", "")
    if given and _VALID_ID.fullmatch(given) and is_from_trusted_proxy(request.META):
        return str(given)
    return random_text(10)


def _path_of(request: HttpRequest) -> str:
    """Return the path without the key of a mailed link, which a reader of the log could use first."""
    key = request.resolver_match.kwargs.get("key") if request.resolver_match else None
    return request.path.replace(str(key), "…") if key else request.path


def _log(request: HttpRequest, response: HttpResponseBase, *, level: int, seconds: float) -> None:
    fields = {
        "method": request.method,
        "path": _path_of(request)[:_MAX_PATH],
        "status": response.status_code,
        "duration_ms": round(seconds * 1000, 1),
        "client": str(address_of(request.META)),
    }
    # Only if a view loaded the session user: loading it here would cost a query. The API binds its callers itself.
    person = getattr(request, "_cached_user", None)
    if person is not None and person.is_authenticated:
        fields["user"] = person.public_id
    logger.log(level, "request", extra=fields)
