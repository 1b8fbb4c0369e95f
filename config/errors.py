"""What is answered where no view could: as JSON under /v1, as a page elsewhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from core.api import errors
from core.logs import context


def _of_the_api(request: HttpRequest) -> bool:
    return request.path_info == "/v1" or request.path_info.startswith("/v1/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Before any view or middleware, perhaps with a wrong Host header: nothing is rendered that depends on it."""
    return errors.json_bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _of_the_api(request):
        return errors.json_not_found(request, exception)
    shown = {"title": "Not found", "reason": "There is no such page, or it is not yours."}
    return render(request, "problem.html", shown, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    if _of_the_api(request):
        return errors.json_server_error(request)
    # Without the request: what broke may be what its context processors ask.
    number = context().get("request_id", "")
    said = f"It has been logged as {number}." if number else "It has been logged."
    shown = {"title": "Something broke on our side", "reason": f"{said} Try again in a moment."}
    return HttpResponse(render_to_string("problem.html", shown), status=500)
