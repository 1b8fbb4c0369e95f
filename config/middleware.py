"""Middleware of our own."""

from __future__ import annotations

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from monitors.pings import ping

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
