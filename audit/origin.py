"""The current request, as the origin of actions, for services that do not get it as an argument.

A context variable, because a parameter would pass through every signature between a view and a service, and could be
forgotten. `audit` reads it, and what is shared between clients and accounts, such as `accounts.hashing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core.addresses import client_network

ADMIN = "/admin/"

current: ContextVar[HttpRequest | None] = ContextVar("audited_request", default=None)
"""The current request; None in a command or a worker."""


@contextmanager
def origin_of(request: HttpRequest) -> Iterator[None]:
    token = current.set(request)
    try:
        yield
    finally:
        current.reset(token)


def remember_origin(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Remember the origin of the request. This middleware comes below pings, which are not audited."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        with origin_of(request):
            return get_response(request)

    return answer


def users() -> list[str]:
    """Return whose share the current request takes: its client and its account. A command has neither."""
    request = current.get()
    if request is None:
        return []
    user = getattr(request, "user", None)  # of a session, or the Caller of the API
    key = getattr(getattr(user, "user", user), "pk", None)
    return [client_network(request), *([] if key is None else [f"user:{key}"])]


def is_staff() -> bool:
    """Return whether staff made the current request. A command is the operator's."""
    request = current.get()
    user = getattr(request, "user", None)
    return request is None or bool(getattr(getattr(user, "user", user), "is_staff", False))


def staff(request: HttpRequest) -> Any:
    """Return the person who acts in the admin: services only know the account that they act for."""
    user = getattr(request, "user", None) if request.path_info.startswith(ADMIN) else None
    return user if user is not None and user.is_authenticated and user.is_staff else None
