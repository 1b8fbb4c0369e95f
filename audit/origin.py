"""The origin of an action, taken from the current request, for services that do not get it as an argument.

A context variable, because a parameter would pass through every signature between a view and a service, and could be
forgotten. Only `audit` reads it, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core.addresses import client_of

ADMIN = "/admin/"

_request: ContextVar[HttpRequest | None] = ContextVar("audited_request", default=None)


class Origin(NamedTuple):
    """`staff` is the person who acts in the admin: services only know the account that they act for."""

    address: str | None
    user_agent: str
    staff: Any = None


def remember_origin(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Remember the origin of the request. This middleware comes below pings, which are not audited."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        token = _request.set(request)
        try:
            return get_response(request)
        finally:
            _request.reset(token)

    return answer


def current() -> Origin | None:
    """Return the origin of the current request, or None in a command or a worker."""
    request = _request.get()
    if request is None:
        return None
    user = getattr(request, "user", None) if request.path_info.startswith(ADMIN) else None
    return Origin(
        client_of(request.META).address,
        request.META.get("HTTP_USER_AGENT", ""),
        user if user is not None and user.is_authenticated and user.is_staff else None,
    )
