"""Whose account an identity at GitHub or Google opens. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction

import audit.services
from accounts.models import SocialAccount, User
from accounts.services import AddressTaken, create_account, hand_over
from accounts.verification import is_verified
from accounts.web.social.backends import BACKENDS, Identity
from audit.actions import Action
from connectors.providers.base import OAuthRefused
from core.errors import NotFound, ValidationFailed
from projects.members import is_invited

T = TypeVar("T")


def account_of(identity: Identity, *, now: datetime) -> tuple[User, bool]:
    """Return the account that the identity opens, and whether this call linked it to an existing account.

    The account is the linked one, the one with the address, or a new one. Raises OAuthRefused.
    """
    return _until_settled(lambda: _account_of(identity, now=now))


def link(user: User, identity: Identity) -> None:
    """From now on the identity opens the account. Raises OAuthRefused where it opens another."""
    _until_settled(lambda: _link(user, identity))


def unlink(user: User, provider: str) -> None:
    """Raises ValidationFailed where it is the only way in."""
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).get(pk=user.pk)
        links = SocialAccount.objects.filter(user=user)
        if not user.has_usable_password() and not links.exclude(provider=provider).exists():
            raise ValidationFailed("it is your only way in; set a password first.")
        if not links.filter(provider=provider).delete()[0]:
            raise NotFound
        _record(user, Action.SOCIAL_ACCOUNT_UNLINKED, provider)


def _until_settled(action: Callable[[], T]) -> T:
    """Of two who come with the same identity or address at once, the second finds what the first has made."""
    for _ in range(3):
        try:
            with transaction.atomic():
                return action()
        except (IntegrityError, AddressTaken):
            continue
    raise OAuthRefused("Somebody is doing the same at this moment. Begin again.")


def _account_of(identity: Identity, *, now: datetime) -> tuple[User, bool]:
    known = _known(identity)
    if known is not None:
        return known.user, False
    user = User.objects.filter(email=identity.email).first()
    existed = user is not None
    if user is None:
        if not settings.SIGN_UP and not is_invited(identity.email, now=now):
            raise OAuthRefused(f"There is no account of {identity.email}, and sign-up is by invitation.")
        user = create_account(email=identity.email, password=None)
    elif not is_verified(user):
        # The sign-up with this address was never confirmed.
        hand_over(user, None)
    _add(user, identity)
    return user, existed


def _link(user: User, identity: Identity) -> None:
    known = _known(identity)
    title = BACKENDS[identity.provider].title
    if known is None:
        if SocialAccount.objects.filter(user=user, provider=identity.provider).exists():
            raise OAuthRefused(f"Another account at {title} is linked already; unlink it first.")
        _add(user, identity)
    elif known.user_id != user.pk:
        raise OAuthRefused(f"This account at {title} opens another account of Pulsekeeper.")


def _known(identity: Identity) -> SocialAccount | None:
    links = SocialAccount.objects.select_related("user")
    return links.filter(provider=identity.provider, uid=identity.uid).first()


def _add(user: User, identity: Identity) -> None:
    SocialAccount.objects.create(user=user, provider=identity.provider, uid=identity.uid)
    _record(user, Action.SOCIAL_ACCOUNT_LINKED, identity.provider)


def _record(user: User, action: Action, provider: str) -> None:
    audit.services.record(action, actor=user, details={"provider": provider})
