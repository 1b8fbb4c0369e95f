"""Middleware of our own."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from config.pings import ATTEMPT, pinged
from monitors.heartbeats import pings
from statuspages import public

# What gets smaller. Images and fonts are compressed as they are.
_TEXTS = frozenset(
    {
        "text/html",
        "text/css",
        "text/javascript",
        "application/javascript",
        "application/json",
        "image/svg+xml",
    }
)


def pings_first(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answers pings before DRF and the middleware below, which is for pages and people: sessions, CSRF, messages.

    They would cost more than the ping itself (docs/adr/0013). What is above in the settings counts for all. Nearly all
    pings do not even come here: `config.pings` has answered them, and passes the others on with what it tried.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        monitor_id = pinged(request.method, request.path_info)
        if monitor_id is None:
            return get_response(request)
        tried = request.META.get(ATTEMPT)
        return pings.ping(request, monitor_id) if tried is None else pings.answer(monitor_id, tried)

    return answer


def status_pages_first(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Answers for status pages, badges and their domains before everything that knows sessions: they have none.

    It stands above Django's check of the Host header, since a page's domain is none of ALLOWED_HOSTS.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        return public.answer(request) or get_response(request)

    return answer


def compressed(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Pages, and the static files that they are made of, in gzip: WhiteNoise would want a copy of each file on disk.

    Not the API, whose clients are close by or ask for little. What is compressed already stays as it is. A part of a
    file is a part of its own bytes. Django adds random bytes, so that lengths tell nothing of the secrets in a page.
    """
    gzip = GZipMiddleware(get_response)

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if request.method != "GET" or response.status_code != 200 or kind not in _TEXTS:
            return response
        if request.path_info.startswith("/v1/"):
            return response
        found: HttpResponseBase = gzip.process_response(request, response)
        return found

    return answer
