"""Pings before Django, whose way through a request costs more than a ping that finds its heartbeat up.

Such a ping is answered here, with the very headers that Django would give it. Any other, and whatever else is asked
for, goes on to Django. See docs/adr/0028.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIRequest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string

from config.access import is_forwarded_https
from monitors.pings import OK, attempt

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ATTEMPT = "pulsekeeper.ping"
"""The key of the environ, and of a request's META, under which Django finds what was tried here."""

_PING = re.compile(r"/v1/heartbeats/([0-9A-Za-z_-]{1,64})/ping")
_METHODS = frozenset({"GET", "HEAD", "POST"})
_MIDDLEWARE = "config.middleware.pings_first"
_MOST_HOSTS = 128


def pinged(method: str | None, path: str) -> str | None:
    """The id of the heartbeat that such a request pings; None where it is no ping."""
    found = _PING.fullmatch(path) if method in _METHODS else None
    return None if found is None else found[1]


def pings_before(django: WSGIApplication) -> WSGIApplication:
    """The application that the web server calls."""
    headers_for = lru_cache(_MOST_HOSTS)(_by(_above(_MIDDLEWARE)))

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        monitor_id = pinged(environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""))
        if monitor_id is None:
            return django(environ, start_response)
        scheme = "https" if is_forwarded_https(environ) else environ["wsgi.url_scheme"]
        headers = headers_for(environ.get("HTTP_HOST", ""), scheme)
        if headers is None:
            return django(environ, start_response)
        tried = attempt(environ, monitor_id)
        if not tried.kept:
            environ[ATTEMPT] = tried
            return django(environ, start_response)
        if connection.connection is not None:  # this thread wrote for those that came together
            connection.close()
        start_response("200 OK", list(headers))
        return [OK]

    return application


Answer = Callable[[HttpRequest], HttpResponse]
Headers = tuple[tuple[str, str], ...]


def _above(name: str) -> Answer:
    """The middleware that stands above the one of that name, around the answer to a ping."""

    def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(OK, content_type="application/json")

    chain: Answer = answer
    for path in reversed(settings.MIDDLEWARE[: settings.MIDDLEWARE.index(name)]):
        chain = cast("Answer", convert_exception_to_response(import_string(path)(chain)))
    return chain


def _by(answer: Answer) -> Callable[[str, str], Headers | None]:
    """What the answer to a ping has for headers, by the Host that was asked for and the scheme; None where it is
    another answer: no host of ours, or the domain of a status page."""

    def headers(host: str, scheme: str) -> Headers | None:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/v1/heartbeats/mon/ping",
            "HTTP_HOST": host,
            "SERVER_NAME": "",
            "SERVER_PORT": "",
            "wsgi.url_scheme": scheme,
            "wsgi.input": BytesIO(),
        }
        response = answer(WSGIRequest(environ))
        return tuple(response.items()) if response.status_code == 200 else None

    return headers
