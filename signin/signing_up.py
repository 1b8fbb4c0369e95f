"""Sign-up: mail the address a link, and ask for the password on the page that it opens.

Nothing is stored before that. So typing another person's address creates no account and no password, blocks no other
sign-up, and reveals nothing: an address with an account gets a different mail, with the same work.
"""

from __future__ import annotations

from datetime import timedelta

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.core import signing
from django.urls import reverse

from accounts.models import User
from accounts.services import AddressTaken, create_account, hand_over, is_verified, verified_account

LIFETIME = timedelta(days=3)
_SALT = "pulsekeeper.sign-up"


def address_of(name: str, **parts: str) -> str:
    """Return an absolute URL for a mail, built from BASE_URL and not from the Host header."""
    return f"{settings.BASE_URL}{reverse(name, kwargs=parts)}"


def send_link(email: str) -> None:
    """Mail the address a link to choose a password, or a note that it has an account."""
    template = "account_already_exists" if verified_account(email) else "email_confirmation_signup"
    link = address_of("account_signup_link", key=signing.dumps(email, salt=_SALT))
    get_adapter().send_mail(f"account/email/{template}", email, {"activate_url": link})


def read_link(key: str) -> str | None:
    """Return the address that the link was sent to, or None if the link is expired or invalid."""
    try:
        return str(signing.loads(key, salt=_SALT, max_age=LIFETIME))
    except signing.BadSignature:
        return None


def complete(email: str, password: str) -> User:
    """Create the account for the proven owner of the address. Raises AddressTaken, ValidationFailed."""
    user = User.objects.filter(email=email).first()
    if user is None:
        return create_account(email=email, password=password)
    if is_verified(user):
        raise AddressTaken
    hand_over(user, password)
    return user
