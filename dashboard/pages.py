"""Helpers of all pages for signed-in users: the caller, responses, error pages, messages and the navigation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET, require_POST

from accounts.models import User
from core import throttles
from core.clock import utc_now
from core.errors import ApiError, NotFound
from incidents.selectors import count_open
from projects.access import Caller

P = ParamSpec("P")

NO_PAGE = "This page does not exist, or you have no access to it."


class PageRequest(HttpRequest):
    """A request of a signed-in user. `htmx` is set by django_htmx.middleware."""

    caller: Caller
    now: datetime
    htmx: Any


PageView = Callable[Concatenate[PageRequest, P], HttpResponseBase]
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def page(view: PageView[P]) -> View[P]:
    """Require a signed-in user, and render errors of services as error pages."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.is_authenticated:
            # The session expired while the page was open. The page's script reports it and keeps the input.
            return HttpResponse(status=401) if request.htmx else redirect_to_login(request.get_full_path())
        request.caller, request.now = Caller(request.user), utc_now()
        try:
            response = view(request, *args, **kwargs)
        except ApiError as error:
            response = problem(request, error)
        # Private data: keep it out of caches and of the back button after signing out.
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    return cast("View[P]", guarded)


def action(view: PageView[P]) -> View[P]:
    """Like `page`, but only for POST."""
    return require_POST(page(view))


def read_only(view: PageView[P]) -> View[P]:
    """Like `page`, but only for GET."""
    return require_GET(page(view))


def problem(request: PageRequest, error: ApiError) -> HttpResponse:
    """Render an error as a page, or as text for scripts."""
    if request.htmx:
        return HttpResponse(str(error), "text/plain", error.status, headers=error.headers)
    reason = NO_PAGE if error.reason == NotFound.reason else error.reason
    context = {"title": error.code.replace("_", " ").capitalize(), "reason": reason}
    page = render_to_string("problem.html", context, request)
    return HttpResponse(page, status=error.status, headers=error.headers)


def render_page(request: PageRequest, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
    """Render a template of the dashboard. `section`, the entry of the navigation, is the first part of the path."""
    context["section"] = request.path.split("/")[1]
    return render(request, f"dashboard/{template}.html", context, status=status)


def done(request: PageRequest, message: str, to: str, *args: str) -> HttpResponse:
    """Redirect to the page `to` with a message about success."""
    messages.success(request, message)
    return redirect(to, *args)


def button(
    service: Callable[..., object],
    message: str,
    to: str,
    *,
    to_first_id: bool = False,
    takes_now: bool = False,
) -> Callable[..., Any]:
    """Return the view of a button: call a service with the ids of the path, and redirect with a message about success.

    With `to_first_id`, `to` is the page of the first id. A conflict is shown as a message, other errors as a page.
    """

    @action
    def press(request: PageRequest, /, **ids: str) -> HttpResponse:
        options = {"now": request.now} if takes_now else {}
        try:
            service(request.caller, *ids.values(), **options)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            messages.error(request, str(error))
        else:
            messages.success(request, message)
        return redirect(to, *list(ids.values())[:1]) if to_first_id else redirect(to)

    return press


@contextmanager
def errors_as_messages(request: PageRequest) -> Iterator[None]:
    """Show the error of an action as a message, not as an error page, unless its object does not exist."""
    try:
        yield
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, str(error))


def count_request(request: PageRequest, scope: str) -> None:
    """Count a request in a scope of `settings.THROTTLES`, which the API shares. Raises TooManyRequests."""
    throttles.count_request(scope, request.caller.account)


def home(request: HttpRequest) -> HttpResponse:
    """Redirect the bare address of the deployment to the overview, or to the sign-in page."""
    return redirect("/monitors" if request.user.is_authenticated else "/account/login/")


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Return a callable, so that incidents are counted only if a template renders it: fragments have no navigation."""
    user = getattr(request, "user", None)
    return {"navigation": partial(_navigation, user)} if isinstance(user, User) else {}


def _navigation(user: User) -> list[tuple[str, str, str, int]]:
    return navigation_entries(open_incidents=count_open(user))


def navigation_entries(*, open_incidents: int) -> list[tuple[str, str, str, int]]:
    """Return the section, title, icon and number of open items of each entry."""
    return [
        ("monitors", "Monitors", "heart-pulse", 0),
        ("incidents", "Incidents", "triangle-alert", open_incidents),
        ("status-pages", "Status pages", "globe", 0),
        ("alert-channels", "Alert channels", "bell", 0),
        ("on-call", "On call", "phone-call", 0),
        ("maintenance", "Maintenance", "calendar", 0),
        ("projects", "Projects", "folder", 0),
        ("locations", "Locations", "network", 0),
        ("connectors", "Connectors", "plug", 0),
        ("tokens", "API tokens", "key", 0),
    ]
