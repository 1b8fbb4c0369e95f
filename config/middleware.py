"""Middleware of our own."""

from __future__ import annotations

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from monitors.pings import ping
from statuspages import public

_PING = re.compile(r"/v1/heartbeats/([0-9A-Za-z_-]{1,64})/ping")
_METHODS = frozenset({"GET", "HEAD", "POST"})


def pings_first(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answers pings before DRF and the middleware below, which is for pages and people: sessions, CSRF, messages.

    They would cost more than the ping itself (docs/adr/0013). What is above in the settings counts for all.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        found = _PING.fullmatch(request.path_info) if request.method in _METHODS else None
        return get_response(request) if found is None else ping(request, found[1])

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
