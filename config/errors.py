"""Error handlers: JSON under /v1, pages elsewhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from core import logs
from core.api.errors import json_error
from core.errors import ApiError, BadRequest, NotFound


def _is_api(request: HttpRequest) -> bool:
    return request.path_info == "/v1" or request.path_info.startswith("/v1/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return JSON for every path: the Host header may be invalid, so no page can be rendered."""
    return json_error(BadRequest())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_api(request):
        return json_error(NotFound("There is no such address."))
    context = {"title": "Not found", "reason": "This page does not exist, or you have no access to it."}
    return render(request, "problem.html", context, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    if _is_api(request):
        return json_error(ApiError())
    # Without the request, because its context processors may have failed.
    request_id = logs.context().get("request_id", "")
    logged = f"It has been logged as {request_id}." if request_id else "It has been logged."
    context = {"title": "Something went wrong on our side", "reason": f"{logged} Try again in a moment."}
    return HttpResponse(render_to_string("problem.html", context), status=500)
