"""Middleware for pings, status pages and compression."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from accounts.web.limits import too_many
from config.pings import ATTEMPT
from core.errors import TooManyRequests
from monitors.heartbeats import pings as heartbeat_pings
from monitors.heartbeats.incoming import target_of
from statuspages import public

# Images and fonts are already compressed.
_COMPRESSIBLE = frozenset(
    {"text/html", "text/css", "text/javascript", "application/javascript", "application/json", "image/svg+xml"}
)


def pings(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer pings before DRF and the middleware for pages (sessions, CSRF), which cost more than a ping.

    `config.pings` answers nearly all pings before Django. It passes on the others with the result of its attempt.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        target = target_of(request.method, request.path_info)
        if target is None:
            return get_response(request)
        attempt = request.META.get(ATTEMPT)
        return heartbeat_pings.receive(request, target) if attempt is None else heartbeat_pings.answer(attempt)

    return middleware


def status_pages(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer status pages, badges and pages' own domains before the middleware for sessions, which they do not use.

    It runs before the check of the Host header, because the domains of pages are not in ALLOWED_HOSTS.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        return public.answer(request) or get_response(request)

    return middleware


def refuse(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Answer with 429 if a page needs a hash and the client has had its share. Of the API, DRF handles all errors."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return get_response(request)

    def process_exception(request: HttpRequest, error: Exception) -> HttpResponse | None:
        return too_many(request, error.wait or 1) if isinstance(error, TooManyRequests) else None

    middleware.process_exception = process_exception  # type: ignore[attr-defined]
    return middleware


def compress(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Compress pages and static files with gzip, except for the API and partial content.

    WhiteNoise would need a compressed copy of each file on disk. Django adds random bytes against BREACH attacks.
    """
    gzip = GZipMiddleware(get_response)

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        content_type = response.headers.get("Content-Type", "").partition(";")[0]
        if request.method != "GET" or response.status_code != 200 or content_type not in _COMPRESSIBLE:
            return response
        if request.path_info.startswith("/v1/"):
            return response
        compressed: HttpResponseBase = gzip.process_response(request, response)
        return compressed

    return middleware
