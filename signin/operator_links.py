"""Links of the operator that sign in without a password: the way in when the OpenID provider is away."""

from __future__ import annotations

from datetime import timedelta

from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import perform_login
from django.core import signing
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

import audit.services
from accounts.models import User
from accounts.services import target
from audit.actions import Action
from signin.signing_up import address_of

LIFETIME = timedelta(minutes=10)
_SALT = "pulsekeeper.operator-link"


def create_link(user: User) -> str:
    """Return a link that signs in once. A later sign-in or change of password makes it invalid."""
    audit.services.record(Action.OPERATOR_LINK_CREATED, **target(user))
    return address_of("account_sign_in_link", key=signing.dumps([user.public_id, _state(user)], salt=_SALT))


def _state(user: User) -> str:
    return f"{user.last_login} {user.get_session_auth_hash()[:16]}"


def _read(key: str, users: QuerySet[User]) -> User | None:
    try:
        public_id, state = signing.loads(key, salt=_SALT, max_age=LIFETIME)
    except signing.BadSignature:
        return None
    user = users.filter(public_id=public_id).first()
    return user if user is not None and _state(user) == state else None


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest, key: str) -> HttpResponse:
    """Show a button that signs in. The second factor and the other stages of every sign-in follow."""
    users = User.objects.all()
    if request.method == "POST":  # the second of two at once waits, and then finds it used
        users = users.select_for_update(no_key=True)
    with transaction.atomic():
        return _sign_in(request, _read(key, users))


def _sign_in(request: HttpRequest, user: User | None) -> HttpResponse:
    if user is None:
        context = {"title": "This link is no longer valid", "reason": "It was used, or is older than ten minutes."}
        return render(request, "problem.html", context, status=404)
    if request.method == "GET":
        return render(request, "accounts/sign_in_link.html", {"account": user})
    record_authentication(request, user, "link", email=user.email)
    response: HttpResponse = perform_login(request, user, email=user.email)
    return response
