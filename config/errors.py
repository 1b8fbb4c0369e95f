"""Error handlers: JSON under /v1, pages elsewhere."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from core import logs
from core.api.errors import json_error
from core.errors import ApiError, BadRequest, NotFound, Unavailable
from core.postgresql.availability import is_outage
from dashboard.pages import NO_PAGE


def is_api(path: str) -> bool:
    return path == "/v1" or path.startswith("/v1/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return JSON for every path: the Host header may be invalid, so no page can be rendered."""
    return json_error(BadRequest())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_api(request.path_info):
        return json_error(NotFound("This endpoint does not exist."))
    context = {"title": "Not found", "reason": NO_PAGE}
    return render(request, "problem.html", context, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return 503 if PostgreSQL is away, else 500."""
    if is_outage(error := sys.exception()):
        return unavailable(request.path_info, error if isinstance(error, ApiError) else None)
    if is_api(request.path_info):
        return json_error(ApiError())
    # Without the request, because its context processors may have failed.
    request_id = logs.context().get("request_id", "")
    logged = f"It has been logged as {request_id}." if request_id else "It has been logged."
    context = {"title": "Something went wrong on our side", "reason": f"{logged} Try again in a moment."}
    return HttpResponse(render_to_string("problem.html", context), status=500)


def unavailable(path: str, error: ApiError | None = None) -> HttpResponse:
    """Return the answer while PostgreSQL is away."""
    error = error or Unavailable()
    if is_api(path):
        return json_error(error)
    context = {"title": "Temporarily unavailable", "reason": error.reason}
    page = render_to_string("problem.html", context)
    return HttpResponse(page, status=error.status, headers=error.headers)
