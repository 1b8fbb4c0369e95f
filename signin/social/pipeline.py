"""Our steps of social-auth's pipeline: find the account for an identity at a provider.

The context of the pipeline has `user` (signed in already, or None) and `begun` (stored by the view at the start).
"""

from __future__ import annotations

from collections.abc import Collection
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
import tokens.services
from accounts.models import User
from accounts.services import create_account, email_address, follow_staff_group, hand_over, is_verified
from audit.actions import Action
from connectors.providers.guarded import OAuthRefused
from core.clock import utc_now
from core.errors import NotFound, ValidationFailed
from projects.groups import follow_roles
from projects.members import is_invited
from signin.social.backends import BACKENDS, configured
from signin.social.base import SignInBackend, Strategy
from signin.social.openid import NotAdmitted, OpenID
from signin.web_sessions import end_web_sessions


def require_group(backend: SignInBackend, uid: str, groups: list[str] | None, **_: Any) -> None:
    """Refuse people of the OpenID provider who are in none of OIDC_ALLOWED_GROUPS."""
    allowed = settings.OIDC_ALLOWED_GROUPS
    if groups is not None and allowed and not set(allowed).intersection(groups):
        known = _find_link(backend, uid)
        reason = f"{backend.title} says that you are in none of the groups that may sign in here."
        raise NotAdmitted(reason, user=None if known is None else known.user)


def require_verified_address(
    backend: SignInBackend, uid: str, details: dict[str, Any], user: User | None, **_: Any
) -> dict[str, Any] | None:
    """Require an address that the provider has verified, unless the account is known without it."""
    if details["email"] is None:
        if user is not None or _find_link(backend, uid) is not None:
            return None
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
    known = _find_link(backend, uid)
    if known is None or known.user != user:
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
        # Whom the OpenID provider lets in is up to the operator.
        if not settings.SIGN_UP and backend.name != OpenID.name and not is_invited(email, now=now):
            raise OAuthRefused(f"No account uses {email}, and sign-up is by invitation only.")
        return {"user": create_account(email=email, password=None), "is_new": True}
    user = User.objects.select_for_update(of=["self"]).get(pk=user.pk)
    linked = backend.links_of(user).first()
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
        others = links.exclude(provider=provider).filter(provider__in=[backend.name for backend in configured()])
        if settings.OIDC_ONLY and provider == OpenID.name:
            raise ValidationFailed("This is your only way to sign in.")
        if not user.has_usable_password() and not others.exists():
            raise ValidationFailed("This is your only way to sign in. Set a password first.")
        if not links.filter(provider=provider).delete()[0]:
            raise NotFound
        _record(user, Action.SOCIAL_ACCOUNT_UNLINKED, provider)
        if provider == OpenID.name:
            follow_groups(user, (), now=utc_now())
        notify(user, BACKENDS[provider], "unlinked")


def linked_providers(user: User) -> set[str]:
    return set(UserSocialAuth.objects.filter(user=user).values_list("provider", flat=True))


def follow_groups(user: User, groups: Collection[str], *, now: datetime) -> None:
    """Give the account the rights of these groups, and take away those of earlier ones.

    Runs after the transaction of the pipeline, before the person is signed in: project rows are locked before accounts.
    """
    granted = user.is_active and not set(settings.OIDC_STAFF_GROUPS).isdisjoint(groups)
    follow_staff_group(user, granted=granted)
    roles = [(project, role) for group, project, role in settings.OIDC_PROJECT_ROLES if group in groups]
    follow_roles(user, roles if user.is_active else [], now=now)


def turn_away(user: User, *, now: datetime) -> None:
    """End what an account has that may no longer sign in: the rights of its groups, and its sessions."""
    follow_groups(user, (), now=now)
    end_web_sessions(user)
    tokens.services.end_sessions(user)
    audit.services.record_failure(Action.SIGN_IN_FAILED, subject=user, details={"door": "web"})


def _find_link(backend: SignInBackend, uid: str) -> UserSocialAuth | None:
    found: UserSocialAuth | None = (
        UserSocialAuth.objects.select_related("user").filter(provider=backend.name, uid=uid).first()
    )
    return found


def notify(user: User, backend: SignInBackend | type[SignInBackend], what: str) -> None:
    get_adapter().send_notification_mail(f"accounts/email/{what}", user, {"title": backend.title})


def _record(user: User, action: Action, provider: str) -> None:
    audit.services.record(action, actor=user, details={"provider": provider})
