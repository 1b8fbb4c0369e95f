"""Whether an account's e-mail address is known to be its person's. The rows are allauth's, which asks for them too.

Every account has one: `primary`, of `User.email`. Besides it there may be one that the person wants to change to, until
its mail is answered.
"""

from __future__ import annotations

from allauth.account.models import EmailAddress

from accounts.models import User


def is_verified(user: User) -> bool:
    return bool(EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists())


def set_address(user: User) -> None:
    """Make `user.email` the account's only address, and verified. In the transaction that writes the user."""
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=user.email, primary=True, verified=True)


def verified_account(email: str) -> User | None:
    """The account of an address, which is in lower case; None if it was never verified."""
    user = User.objects.filter(email=email).first()
    return user if user is not None and is_verified(user) else None
