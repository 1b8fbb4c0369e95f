"""Sign in with another provider, and link it to accounts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import get_next_redirect_url, perform_login
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from connectors.providers.guarded import OAuthRefused, ProviderFailed
from core.addresses import client_network
from core.clock import utc_now
from core.errors import TooManyRequests
from core.throttles import seconds_to_wait
from core.waiting import limit_waiting
from dashboard.pages import PageRequest, action, errors_as_messages
from signin.limits import too_many
from signin.reauthentication import is_recent
from signin.social.backends import BACKENDS, configured
from signin.social.base import SignInBackend
from signin.social.openid import NotAdmitted, OpenID
from signin.social.pipeline import follow_groups, turn_away, unlink

BEGUN = "social_begun"
"""Session key: who started the flow, the page to return to, and whether it is a reauthentication."""
AGAIN = "again"


def leads_to_providers(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Allow the page's forms to redirect to GitHub or Google: browsers apply `form-action` to redirects too.

    The OpenID provider has a page of its own in between (`OpenID.start`).
    """

    @wraps(view)
    def widened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: Any = view(request, *args, **kwargs)
        response._csp_update = {
            "form-action": [backend.setting_of("URL") for backend in configured() if backend is not OpenID]
        }
        return response  # type: ignore[no-any-return]

    return widened


def by_password(view: Callable[..., HttpResponse], *, when_read: bool = True) -> Callable[..., HttpResponse]:
    """Refuse the page under OIDC_ONLY. `when_read`: also for GET, not only its form."""

    @wraps(view)
    def allowed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if settings.OIDC_ONLY and (when_read or request.method == "POST"):
            context = {"title": "Passwords are turned off", "reason": f"Sign in with {settings.OIDC_NAME}."}
            return render(request, "problem.html", context, status=403)
        return view(request, *args, **kwargs)

    return allowed


def _backend(request: HttpRequest, provider: str) -> SignInBackend:
    found = BACKENDS.get(provider)
    if found not in configured():
        raise Http404
    return found.of(request)


@never_cache
@require_POST
def begin(request: HttpRequest, provider: str) -> HttpResponse:
    """Start signing in or up. If signed in already: reauthenticate, or link the provider."""
    backend = _backend(request, provider)
    again = request.user.is_authenticated and AGAIN in request.POST
    if request.user.is_authenticated and not again and not is_recent(request):
        raise ReauthenticationRequired
    wait = seconds_to_wait("sign-in-elsewhere", client_network(request))
    if wait is not None:
        return too_many(request, wait)
    request.session[BEGUN] = {"user": request.user.pk, "next": get_next_redirect_url(request), "again": again}
    backend.MAX_AGE = 0 if again else None
    try:
        with limit_waiting(client_network(request), stranger=True):
            return cast("HttpResponse", backend.start())
    except TooManyRequests as error:
        return _problem(request, backend, error.reason or error.code, status=error.status)
    except ProviderFailed as error:
        return _problem(request, backend, str(error), status=502)


@never_cache
@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    backend = _backend(request, provider)
    begun = request.session.pop(BEGUN, None) or {"user": None, "next": None}
    if begun["user"] != request.user.pk:
        reason = "You have signed in or out since. Start again."
        return _problem(request, backend, reason, status=400)
    user = request.user if request.user.is_authenticated else None
    try:
        with limit_waiting(client_network(request), stranger=True):
            result = backend.finish(user=user, begun=begun, now=utc_now())
    except TooManyRequests as error:
        return _problem(request, backend, error.reason or error.code, status=error.status)
    except NotAdmitted as error:
        if error.user is not None:
            if error.user == user:
                logout(request)
            turn_away(error.user, now=utc_now())
        return _problem(request, backend, str(error), status=403)
    except OAuthRefused as error:
        return _problem(request, backend, str(error), status=400)
    except ProviderFailed as error:
        return _problem(request, backend, str(error), status=502)
    if isinstance(result, HttpResponse):
        return result
    if isinstance(backend, OpenID):
        follow_groups(result, backend.groups or (), now=utc_now())
    if user is not None:
        messages.success(request, f"You can now sign in with {backend.title}.")
        return redirect("account")
    record_authentication(request, result, "social", provider=backend.name)
    # The stages of every sign-in follow: closed accounts, the second factor.
    response: HttpResponse = perform_login(request, result, redirect_url=begun["next"], email=result.email)
    return response


@action
def remove(request: PageRequest, provider: str) -> HttpResponse:
    with errors_as_messages(request):
        unlink(request.caller.user, provider)
        messages.success(request, f"{BACKENDS[provider].title} is no longer linked to this account.")
    return redirect("account")


def _problem(request: HttpRequest, backend: SignInBackend, reason: str, *, status: int) -> HttpResponse:
    context = {"title": f"Sign-in with {backend.title} failed", "reason": reason}
    return render(request, "problem.html", context, status=status)
