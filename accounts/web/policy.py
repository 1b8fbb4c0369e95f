"""The content security policy of pages whose forms redirect to providers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse

from accounts.web.social.backends import configured

View = Callable[..., HttpResponse]


def leads_to_providers(view: View) -> View:
    """Allow the page's forms to redirect to GitHub or Google: browsers apply `form-action` to redirects too."""

    @wraps(view)
    def widened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: Any = view(request, *args, **kwargs)
        response._csp_update = {"form-action": [backend.origin() for backend in configured()]}
        return response  # type: ignore[no-any-return]

    return widened
