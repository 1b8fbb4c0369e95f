"""What every page for signed-in people begins with: who asks, and what an error looks like to a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from accounts.models import User
from core.errors import ApiError
from projects.access import Caller

P = ParamSpec("P")


class PageRequest(HttpRequest):
    """A request of somebody who is signed in. htmx sets `htmx` (django_htmx.middleware)."""

    caller: Caller
    htmx: Any


def page(
    view: Callable[Concatenate[PageRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Closed to everybody who is not signed in; errors that services raise become pages that say so."""

    @login_required
    def signed_in(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        asked = cast("PageRequest", request)
        asked.caller = Caller(cast("User", request.user))
        try:
            answer = view(asked, *args, **kwargs)
        except ApiError as error:
            return problem(asked, error)
        # What is said of somebody's monitors is kept by no cache, and not shown by the back button after signing out.
        answer.headers.setdefault("Cache-Control", "private, no-store")
        return answer

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        asked = cast("PageRequest", request)
        if asked.htmx and not asked.user.is_authenticated:
            # The session ended under an open page: its script says so, and what was typed stays.
            return HttpResponse(status=401)
        return signed_in(request, *args, **kwargs)

    return cast("Callable[Concatenate[HttpRequest, P], HttpResponse]", guarded)


def problem(request: PageRequest, error: ApiError) -> HttpResponse:
    """Render an error as a page; for scripts, return its reason alone."""
    if request.htmx:
        return HttpResponse(error.reason or error.code, status=error.status, content_type="text/plain")
    context = {"title": error.code.replace("_", " ").capitalize(), "reason": error.reason}
    return render(request, "problem.html", context, status=error.status)
