"""Helpers of all pages for signed-in users: the caller, error pages, and messages about actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from accounts.models import User
from core.errors import ApiError, NotFound
from projects.access import Caller

P = ParamSpec("P")


class PageRequest(HttpRequest):
    """A request of a signed-in user. `htmx` is set by django_htmx.middleware."""

    caller: Caller
    htmx: Any


def page(
    view: Callable[Concatenate[PageRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Require a signed-in user, and render errors of services as error pages."""

    @login_required
    def signed_in(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        asked = cast("PageRequest", request)
        asked.caller = Caller(cast("User", request.user))
        try:
            answer = view(asked, *args, **kwargs)
        except ApiError as error:
            return problem(asked, error)
        # Private data: keep it out of caches and of the back button after signing out.
        answer.headers.setdefault("Cache-Control", "private, no-store")
        return answer

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        asked = cast("PageRequest", request)
        if asked.htmx and not asked.user.is_authenticated:
            # The session expired while the page was open. The page's script reports it and keeps the input.
            return HttpResponse(status=401)
        return signed_in(request, *args, **kwargs)

    return cast("Callable[Concatenate[HttpRequest, P], HttpResponse]", guarded)


def problem(request: PageRequest, error: ApiError) -> HttpResponse:
    """Render an error as a page, or as text for scripts."""
    if request.htmx:
        return HttpResponse(error.reason or error.code, status=error.status, content_type="text/plain")
    context = {"title": error.code.replace("_", " ").capitalize(), "reason": error.reason}
    return render(request, "problem.html", context, status=error.status)


def act(request: PageRequest, action: Callable[[], object], *, done: str, to: str, **kwargs: Any) -> HttpResponse:
    """Run the action of a button and redirect to the page `to`, with a message about success or the error."""
    try:
        action()
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        messages.success(request, done)
    response: HttpResponse = redirect(to, **kwargs)
    return response


def home(request: HttpRequest) -> HttpResponse:
    """Redirect the bare address of the deployment to the overview, or to the sign-in page."""
    return redirect("/monitors" if request.user.is_authenticated else "/account/login/")
