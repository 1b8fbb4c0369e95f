"""Throttles of pages for signed-out users, and of those that ask for a secret again.

Pages and the API share them, so that password attempts on both count together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from core.addresses import client_network
from core.errors import TooManyRequests
from core.throttles import seconds_to_wait, wait_to_sign_in

View = Callable[..., HttpResponse]
Identity = Callable[[HttpRequest], str | None]


def by_person(request: HttpRequest) -> str | None:
    return f"user:{request.user.pk}" if request.user.is_authenticated else None


def sign_in_limited(view: View) -> View:
    """Count the forms of `view` as attempts to sign in, together with those of the API."""

    @wraps(view)
    def counted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST":
            wait = wait_to_sign_in(client_network(request), request.POST.get("login"))
            if wait is not None:
                return too_many(request, wait)
        return view(request, *args, **kwargs)

    return counted


def limited(view: View, **scopes: Identity) -> View:
    """Count the forms of `view` in scopes of `settings.THROTTLES` (with _ for -), each by its identity."""

    @wraps(view)
    def counted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST":
            for scope, identity in scopes.items():
                who = identity(request)
                wait = None if who is None else seconds_to_wait(scope.replace("_", "-"), who)
                if wait is not None:
                    return too_many(request, wait)
        return view(request, *args, **kwargs)

    return counted


def too_many(request: HttpRequest, wait: float) -> HttpResponse:
    minutes = math.ceil(wait / 60)
    when = "in a moment" if wait < 10 else "in a minute" if minutes == 1 else f"in {minutes} minutes"
    context = {"title": "Too many attempts", "reason": f"Try again {when}."}
    answer = render(request, "problem.html", context, status=TooManyRequests.status)
    answer["Retry-After"] = TooManyRequests(wait=wait).headers["Retry-After"]
    return answer
