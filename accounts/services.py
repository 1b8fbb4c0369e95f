"""What is done to accounts."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts.models import Plan, User
from core.errors import ValidationFailed

on_account_created: list[Callable[[User], None]] = []
"""What upper floors do for a new account, in the transaction that makes it; each adds its own when its app is ready."""


def email_address(text: str, *, field: str = "email") -> str:
    """The address as it is kept, in lower case; raises ValidationFailed for what is none."""
    address = text.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise ValidationFailed(" ".join(error.messages), field=field) from None
    return address


def create_account(
    *, email: str, password: str, plan: str = "free", is_staff: bool = False, is_superuser: bool = False
) -> User:
    """A new account; raises ValidationFailed for a bad or taken address, a weak password, an unknown plan."""
    email = email_address(email)
    chosen = Plan.objects.filter(name=plan).first()
    if chosen is None:
        raise ValidationFailed(f"there is no plan {plan!r}.", field="plan")
    user = User(email=email, plan=chosen, is_staff=is_staff, is_superuser=is_superuser)
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationFailed(" ".join(error.messages), field="password") from None
    user.set_password(password)
    with transaction.atomic():
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError:
            raise ValidationFailed("there is an account with this address already.", field="email") from None
        welcome(user)
    return user


def welcome(user: User) -> None:
    """Have the upper floors do what they do for a new account."""
    for add in on_account_created:
        add(user)


def change_password(user: User, *, current: str, new: str) -> User:
    """Raises ValidationFailed where `current` is not the password, or `new` is a weak one.

    The row is locked: of two changes at once the second has to know the first one's password.
    """
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).select_related("plan").get(pk=user.pk)
        if not user.check_password(current):
            raise ValidationFailed("is not the password of this account.", field="current_password")
        try:
            validate_password(new, user)
        except ValidationError as error:
            raise ValidationFailed(" ".join(error.messages), field="password") from None
        user.set_password(new)
        user.save(update_fields=["password"])
    return user
