"""The way to GitHub or Google and back."""

from __future__ import annotations

from typing import cast

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import get_next_redirect_url, perform_login
from allauth.core.exceptions import ReauthenticationRequired
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from accounts.models import SocialAccount, User
from accounts.web.reauthentication import is_recent
from accounts.web.social.account_linking import account_of, link, unlink
from accounts.web.social.backends import BACKENDS, Identity, SignInBackend
from connectors.providers.base import OAuthRefused, ProviderFailed
from core.addresses import client_network
from core.clock import utc_now
from core.errors import NotFound, TooManyRequests, ValidationFailed
from core.forms import sentence
from core.waiting import waiting_place

BEGUN = "social_begun"
"""Session key: who began it, where it leads, and whether it is a reauthentication."""
AGAIN = "again"


def _backend(request: HttpRequest, provider: str) -> SignInBackend:
    found = BACKENDS.get(provider)
    if found is None or not found.is_configured():
        raise Http404
    return found(request)


@never_cache
@require_POST
def begin(request: HttpRequest, provider: str) -> HttpResponse:
    """Start signing in or up. If signed in already: reauthenticate, or link the provider."""
    backend = _backend(request, provider)
    again = request.user.is_authenticated and AGAIN in request.POST
    if request.user.is_authenticated and not again and not is_recent(request):
        raise ReauthenticationRequired
    request.session[BEGUN] = {
        "user": request.user.pk,
        "next": get_next_redirect_url(request),
        "again": again,
    }
    return redirect(backend.auth_url())


@never_cache
@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    backend = _backend(request, provider)
    begun = request.session.pop(BEGUN, None) or {"user": None, "next": None}
    try:
        with waiting_place(client_network(request)):
            identity = backend.identity()
        if begun["user"] != request.user.pk:
            changed = "Somebody has signed in or out meanwhile. Begin again."
            return _problem(request, backend, changed, status=400)
        if begun.get("again"):
            return _recognize(request, identity, next_url=begun["next"])
        if begun["user"] is not None:
            return _link(request, backend, identity)
        user, linked = account_of(identity, now=utc_now())
    except TooManyRequests as error:
        return _problem(request, backend, error.reason or error.code, status=error.status)
    except OAuthRefused as error:
        return _problem(request, backend, str(error), status=400)
    except ProviderFailed as error:
        return _problem(request, backend, str(error), status=502)
    if linked:
        _tell(user, backend, "linked")
    record_authentication(request, user, "social", provider=identity.provider)
    # The stages of every sign-in follow: an account that was shut, the second factor.
    response: HttpResponse = perform_login(request, user, redirect_url=begun["next"], email=user.email)
    return response


def _recognize(request: HttpRequest, identity: Identity, *, next_url: str | None) -> HttpResponse:
    """Record the reauthentication and resume the suspended request."""
    user = cast("User", request.user)
    if not SocialAccount.objects.filter(user=user, provider=identity.provider, uid=identity.uid).exists():
        raise OAuthRefused("That account does not open the one that is signed in here.")
    record_authentication(request, user, "social", provider=identity.provider, reauthenticated=True)
    query = f"?{urlencode({'next': next_url})}" if next_url else ""
    return redirect(f"{reverse('account_reauthenticate_by_mail')}{query}")


def _link(request: HttpRequest, backend: SignInBackend, identity: Identity) -> HttpResponse:
    user = cast("User", request.user)
    link(user, identity)
    _tell(user, backend, "linked")
    messages.success(request, f"You can sign in with {backend.title} from now on.")
    return redirect("account")


@require_POST
@login_required
def remove(request: HttpRequest, provider: str) -> HttpResponse:
    user, backend = cast("User", request.user), BACKENDS.get(provider)
    if backend is None:
        raise Http404
    try:
        unlink(user, provider)
    except NotFound:
        raise Http404 from None
    except ValidationFailed as error:
        messages.error(request, sentence(error.reason or ""))
    else:
        _tell(user, backend, "unlinked")
        messages.success(request, f"{backend.title} does not open this account any more.")
    return redirect("account")


def _tell(user: User, backend: SignInBackend | type[SignInBackend], what: str) -> None:
    get_adapter().send_notification_mail(f"accounts/email/{what}", user, {"title": backend.title})


def linked_providers(user: User) -> set[str]:
    return set(SocialAccount.objects.filter(user=user).values_list("provider", flat=True))


def _problem(request: HttpRequest, backend: SignInBackend, reason: str, *, status: int) -> HttpResponse:
    context = {"title": f"Signing in with {backend.title}", "reason": reason}
    return render(request, "accounts/social_problem.html", context, status=status)
