"""Signing up: the address gets a link, and whoever opens it chooses the password.

Nothing is stored before. Somebody who types the address of somebody else leaves no account and no password behind, is
in nobody's way, and learns nothing: an address that has an account gets another mail, by the same work.
"""

from __future__ import annotations

from datetime import timedelta

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from django.conf import settings
from django.core import signing
from django.db import transaction
from django.urls import reverse

from accounts.models import User
from accounts.services import AddressTaken, create_account, hand_over
from accounts.verification import is_verified

LIFETIME = timedelta(days=3)
_SALT = "pulsekeeper.sign-up"


def address_of(name: str, **parts: str) -> str:
    """Return the URL for a mail: of BASE_URL, whatever Host the request named."""
    return f"{settings.BASE_URL}{reverse(name, kwargs=parts)}"


def send_link(email: str) -> None:
    """Mail the address a link to choose a password, or that it has an account already."""
    taken = has_account(email)
    template = "account_already_exists" if taken else "email_confirmation_signup"
    link = address_of("account_signup_link", key=signing.dumps(email, salt=_SALT))
    get_adapter().send_mail(f"account/email/{template}", email, {"activate_url": link})


def read_link(key: str) -> str | None:
    """Return the address that the link was sent to, or None if it has expired or is none of ours."""
    try:
        return str(signing.loads(key, salt=_SALT, max_age=LIFETIME))
    except signing.BadSignature:
        return None


def has_account(email: str) -> bool:
    """An account whose address was never confirmed does not count: it may be anybody's."""
    return bool(EmailAddress.objects.filter(email=email, primary=True, verified=True).exists())


def complete(email: str, password: str) -> User:
    """Create the account of somebody who reads the mail of the address. Raises AddressTaken, ValidationFailed."""
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).filter(email=email).first()
        if user is None:
            return create_account(email=email, password=password)
        if is_verified(user):
            raise AddressTaken
        hand_over(user, password)
        return user
