"""Count the requests of the web server by route, for /metrics.

A route is the pattern of a URL, never a path: every value of a label is kept forever.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.admindocs.views import simplify_regex

from core.metrics import Counter, Histogram
from statuspages.public import PATHS, is_public

ROUTE = "pulsekeeper.route"
"""The key in the environ and in request.META for the route, once it is known."""
OTHER = "other"
ADMIN, PING, SIGNAL = "/admin/", "/v1/heartbeats/<monitor_id>/ping", "/v1/heartbeats/<monitor_id>/ping/<signal>"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

REQUESTS = Counter(
    "pulsekeeper_requests_total",
    "Requests that the web server answered, by pattern of the URL, method and status. `other` are unknown URLs and "
    "methods, and requests that were refused before their route was known. `/healthz` does not count.",
    ("route", "method", "status"),
    (),
)
SECONDS = Histogram(
    "pulsekeeper_request_seconds",
    "From the end of a request to the start of its answer, with the time in which it waited for its turn.",
    (0.005, 0.025, 0.1, 0.5, 2.5),
    ("route", "method"),
    (),
)


@cache
def label_of(pattern: str) -> str:
    """Return the label of a resolved pattern: `/v1/monitors/<monitor_id>` for `v1/monitors/<id:monitor_id>`.

    The admin, whose patterns contain others with regular expressions, is one route.
    """
    label = re.sub(r"<\w+:", "<", str(simplify_regex(pattern)))
    return ADMIN if label.startswith(ADMIN) else label


def route_of(environ: Mapping[str, Any]) -> str:
    """Return the route of a request that was answered, by Django or earlier."""
    if (known := environ.get(ROUTE)) is not None:
        return str(known)
    path = environ["PATH_INFO"]
    if path == "/metrics":
        return "/metrics"
    if not is_public(path, environ.get("HTTP_HOST", "")):
        return OTHER
    # A path on the own domain of a status page is part of that page.
    return next((start for start in (*PATHS, settings.STATIC_URL) if path.startswith(start)), PATHS[0])


class Answers:
    """Answers that are not in the metrics yet. Used only from the event loop, with little work for each ping."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        self._seconds[route, method if method in _METHODS else OTHER, status].append(seconds)

    def report(self) -> None:
        """Count them. The gateway calls this once a second, and when it ends."""
        for (route, method, status), seconds in self._seconds.items():
            REQUESTS.add(len(seconds), route, method, str(status))
            SECONDS.observe(seconds, route, method)
        self._seconds.clear()
