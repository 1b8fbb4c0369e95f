"""Middleware for pings, status pages and compression."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import cast

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers

from config.pings import ATTEMPT
from core.errors import BodyTooLarge, TooManyRequests
from core.forms import require_small_form
from core.packed import takes_gzip
from monitors.heartbeats import views as heartbeat_views
from monitors.heartbeats.incoming import target_of
from signin.limits import too_many
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
        return heartbeat_views.receive(request, target) if attempt is None else heartbeat_views.answer(attempt)

    return middleware


def status_pages(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer status pages, badges and pages' own domains before the middleware for sessions, which they do not use.

    It runs before the check of the Host header, because the domains of pages are not in ALLOWED_HOSTS.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        return public.answer(request) or get_response(request)

    return middleware


def limit_forms(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Refuse large forms without a session before the check of the CSRF token, which parses them. DRF limits the API's.

    The declared charset of a multipart form is ignored: browsers send none, and of those that Python knows, some are no
    encodings of text, some make text that cannot be stored, and some take quadratic time.
    """

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if request.content_type == "multipart/form-data":
            request.encoding = "utf-8"
        if request.method == "POST" and not request.path_info.startswith("/v1/"):
            try:
                require_small_form(request)
            except BodyTooLarge as error:
                if SESSION_KEY not in request.session:
                    return HttpResponse(error.reason, "text/plain", error.status)
        return get_response(request)

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
    pages = GZipMiddleware(get_response)
    static: dict[str, bytes] = {}  # only as many as there are files

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        content_type = response.headers.get("Content-Type", "").partition(";")[0]
        if request.method != "GET" or response.status_code != 200 or content_type not in _COMPRESSIBLE:
            return response
        if request.path_info.startswith("/v1/"):
            return response
        if request.path_info.startswith(settings.STATIC_URL) and isinstance(response, FileResponse):
            return _compress_file(request, response, static)
        compressed: HttpResponseBase = pages.process_response(request, response)
        return compressed

    return middleware


def _compress_file(request: HttpRequest, response: FileResponse, packed: dict[str, bytes]) -> HttpResponseBase:
    """Compress a static file once: a large script takes 50 ms. It has no secrets, so it needs no random bytes."""
    patch_vary_headers(response, ("Accept-Encoding",))
    if not takes_gzip(request.META.get("HTTP_ACCEPT_ENCODING", "")):
        return response
    key = f"{request.path_info} {response.headers.get('Last-Modified')}"
    if key not in packed:
        packed[key] = gzip.compress(b"".join(cast("Iterator[bytes]", response.streaming_content)), mtime=0)
    if response.file_to_stream is not None:
        response.file_to_stream.close()  # not the response, which would end the request
    headers = {**response.headers, "Content-Encoding": "gzip", "Content-Length": str(len(packed[key]))}
    if "ETag" in headers:
        headers["ETag"] = f"W/{headers['ETag']}"
    return HttpResponse(packed[key], headers=headers)
