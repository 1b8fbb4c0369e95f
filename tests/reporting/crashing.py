"""A web process with a failing view, a failing task and no PostgreSQL: `python -m tests.reporting.crashing SECRET`.

Prints the response. SECRET is in a variable, in texts, in URLs, in headers and in arguments.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import psycopg
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path

from config import reporting
from config.celery import app

SECRET = sys.argv[1]


def crash(request: HttpRequest) -> HttpResponse:
    password = SECRET
    raise RuntimeError(f"the view broke: password={password}")


def work(request: HttpRequest) -> HttpResponse:
    logging.getLogger("config").warning("at work")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'within'")
    broken.apply(args=(SECRET,))
    disconnected.apply()
    return HttpResponse("done")


@app.task(name="tests.broken")
def broken(secret: str) -> None:
    raise RuntimeError(f"the task broke: token: {secret}")


@app.task(name="tests.disconnected")
def disconnected() -> None:
    psycopg.connect("host=127.0.0.1 port=1")


urlpatterns = [path("crash", crash), path("work", work)]


def ask(application: Callable[..., Any], address: str) -> tuple[int, str]:
    """Return the status and the request's id."""
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET, "Cookie": f"a={SECRET}"}
    factory = RequestFactory(headers=headers, SERVER_NAME="localhost")
    answer: dict[str, str] = {}

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        answer.update(headers, status=status)

    application(factory.get(f"{address}?key={SECRET}").environ, start).close()
    return int(answer["status"][:3]), answer["X-Request-ID"]


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    reporting.begin("web")
    application = get_wsgi_application()
    settings.ROOT_URLCONF = __name__
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'alone'")
    seen = {}
    for address in ("/crash", "/work"):
        seen[address] = ask(application, address)
    loaded = [name for name in ("sentry_sdk", "opentelemetry.sdk") if name in sys.modules]
    print(json.dumps({"seen": seen, "loaded": loaded, "middleware": settings.MIDDLEWARE}))  # noqa: T201


if __name__ == "__main__":
    main()
