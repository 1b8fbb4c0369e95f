"""Where the forms of a page may lead."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse

from accounts.web.social.backends import configured

View = Callable[..., HttpResponse]


def leads_to_providers(view: View) -> View:
    """Lets the page's forms end at GitHub or Google: browsers hold redirects of a form against `form-action` too."""

    @wraps(view)
    def widened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: Any = view(request, *args, **kwargs)
        response._csp_update = {"form-action": [backend.origin() for backend in configured()]}
        return response  # type: ignore[no-any-return]

    return widened
