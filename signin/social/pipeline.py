"""Our steps of social-auth's pipeline: find the account for an identity at GitHub or Google.

The context of the pipeline has `user` (signed in already, or None) and `begun` (stored by the view at the start).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import record_authentication
from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from social_django.models import UserSocialAuth

import audit.services
from accounts.models import User
from accounts.services import create_account, email_address, hand_over, is_verified
from audit.actions import Action
from connectors.providers.guarded import OAuthRefused
from core.errors import NotFound, ValidationFailed
from projects.members import is_invited
from signin.social.backends import BACKENDS, SignInBackend, Strategy


def require_verified_address(backend: SignInBackend, details: dict[str, Any], **_: Any) -> dict[str, Any]:
    if details["email"] is None:
        raise OAuthRefused(
            f"{backend.title} has no verified e-mail address for you. Verify one there, then start again."
        )
    try:
        return {"details": {"email": email_address(details["email"])}}
    except (ValidationFailed, AttributeError):
        raise backend.malformed() from None


def reauthenticate(
    strategy: Strategy, backend: SignInBackend, uid: str, user: User | None, begun: dict[str, Any], **_: Any
) -> HttpResponse | None:
    """Record a reauthentication and resume the suspended request, if the flow began as one."""
    if not begun.get("again"):
        return None
    if not UserSocialAuth.objects.filter(user=user, provider=backend.name, uid=uid).exists():
        raise OAuthRefused(f"This {backend.title} account is not linked to the account that is signed in here.")
    record_authentication(strategy.request, user, "social", provider=backend.name, reauthenticated=True)
    query = f"?{urlencode({'next': begun['next']})}" if begun["next"] else ""
    return redirect(f"{reverse('account_reauthenticate_by_mail')}{query}")


def find_or_create_account(
    backend: SignInBackend,
    uid: str,
    details: dict[str, Any],
    social: UserSocialAuth | None,
    user: User | None,
    now: datetime,
    **_: Any,
) -> dict[str, Any] | None:
    """Return the account to link: the signed-in one, the one with the address, or a new one."""
    if social is not None:
        return None
    email = details["email"]
    user = user or User.objects.filter(email=email).first()
    if user is None:
        if not settings.SIGN_UP and not is_invited(email, now=now):
            raise OAuthRefused(f"No account uses {email}, and sign-up is by invitation only.")
        return {"user": create_account(email=email, password=None), "is_new": True}
    user = User.objects.select_for_update(of=["self"]).get(pk=user.pk)
    linked = UserSocialAuth.objects.filter(user=user, provider=backend.name).first()
    if linked is not None and linked.uid == uid:  # by a concurrent request
        return {"user": user, "social": linked, "new_association": False}
    if linked is not None:
        raise OAuthRefused(f"Another {backend.title} account is linked already. Unlink it first.")
    if not is_verified(user):
        hand_over(user, None)  # the sign-up with this address was never confirmed
    return {"user": user, "is_new": False}


def record_link(backend: SignInBackend, user: User, new_association: bool, is_new: bool, **_: Any) -> None:  # noqa: FBT001
    if new_association:
        _record(user, Action.SOCIAL_ACCOUNT_LINKED, backend.name)
        if not is_new:
            notify(user, backend, "linked")


def unlink(user: User, provider: str) -> None:
    """Remove the link. Raises ValidationFailed if it is the only way to sign in, and NotFound if it is not linked."""
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).get(pk=user.pk)
        links = UserSocialAuth.objects.filter(user=user)
        if not user.has_usable_password() and not links.exclude(provider=provider).exists():
            raise ValidationFailed("This is your only way to sign in. Set a password first.")
        if not links.filter(provider=provider).delete()[0]:
            raise NotFound
        _record(user, Action.SOCIAL_ACCOUNT_UNLINKED, provider)
        notify(user, BACKENDS[provider], "unlinked")


def linked_providers(user: User) -> set[str]:
    return set(UserSocialAuth.objects.filter(user=user).values_list("provider", flat=True))


def notify(user: User, backend: SignInBackend | type[SignInBackend], what: str) -> None:
    get_adapter().send_notification_mail(f"accounts/email/{what}", user, {"title": backend.title})


def _record(user: User, action: Action, provider: str) -> None:
    audit.services.record(action, actor=user, details={"provider": provider})
