"""Create, change and delete accounts, and call the hooks of higher layers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

import audit.services
from accounts.models import Plan, User
from audit.actions import Action
from core.bulk import BulkResult
from core.errors import ValidationFailed

logger = logging.getLogger(__name__)


class AddressChange(NamedTuple):
    """A change of address. `clicked`: confirmed by a link sent to the new address, not entered by staff."""

    user: User
    before: str
    clicked: bool


# Hooks, called in the transaction of the change. Higher layers add theirs in `AppConfig.ready`.
on_account_created: list[Callable[[User], None]] = []
on_deletion_requested: list[Callable[[User], None]] = []  # an ApiError prevents the deletion
delete_some_rows: list[Callable[[User], bool]] = []  # in a transaction of their own; returns whether more may be left
before_account_deleted: list[Callable[[User], None]] = []
on_plan_changed: list[Callable[[Sequence[User], Plan], None]] = []
on_address_changed: list[Callable[[AddressChange], None]] = []
on_password_changed: list[Callable[[User], None]] = []  # or removed
on_account_deactivated: list[Callable[[User], None]] = []  # by staff

DELETION_PATIENCE = timedelta(minutes=10)
"""How long after its request a deletion counts as one whose process has died."""
GONE = "a deleted account"
"""Replaces the address of a deleted account in rows that outlive it."""


class AddressTaken(ValidationFailed):
    def __init__(self) -> None:
        super().__init__("an account with this address already exists.", field="email")


def email_address(text: str, *, field: str = "email") -> str:
    """Return the address in lower case, the stored form. Raises ValidationFailed if it is not valid."""
    address = text.strip().lower()
    if not text.rpartition("@")[0].isascii():  # a Kelvin sign becomes k: the address of another person
        raise ValidationFailed("Enter a valid email address.", field=field)
    try:
        validate_email(address)
    except ValidationError as error:
        raise ValidationFailed(" ".join(error.messages), field=field) from None
    return address


def create_account(
    *, email: str, password: str | None, plan: str = "free", is_staff: bool = False, is_superuser: bool = False
) -> User:
    """Create an account. Raises ValidationFailed for an invalid or taken address, a weak password or an unknown plan.

    Without a password, the user signs in with another service. The caller must have verified the address.
    """
    email = email_address(email)
    chosen = Plan.objects.filter(name=plan).first()
    if chosen is None:
        names = ", ".join(Plan.objects.order_by("name").values_list("name", flat=True))
        raise ValidationFailed(f"plan {plan!r} does not exist; choose one of: {names}.", field="plan")
    user = User(email=email, plan=chosen, is_staff=is_staff, is_superuser=is_superuser)
    if password is not None:
        _require_strong(password, user)
    user.set_password(password)
    with transaction.atomic():
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError:
            raise AddressTaken from None
        set_address(user)
        welcome(user)
    return user


def welcome(user: User) -> None:
    """Record a new account and call the hooks of higher layers."""
    audit.services.record(Action.ACCOUNT_CREATED, **target(user), details={"plan": user.plan.name})
    for add in on_account_created:
        add(user)


def target(user: User) -> dict[str, Any]:
    """Return what entries of the audit log about an account have in common."""
    return {"actor": user, "target_id": user.public_id, "target_name": user.email}


def change_password(user: User, *, current: str, new: str) -> User:
    """Change the password. Raises ValidationFailed if `current` is not the password, or `new` is weak.

    Hashing may have to wait, so it is done before the row is locked. The second of two concurrent changes has to know
    the password that the first one set.
    """
    if settings.OIDC_ONLY:
        raise ValidationFailed("passwords are turned off here.", field="password")
    wrong = ValidationFailed("is not the password of this account.", field="current_password")
    known = User.objects.get(pk=user.pk).password
    if not check_password(current, known):
        raise wrong
    _require_strong(new, user)
    hashed = make_password(new)
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).select_related("plan").get(pk=user.pk)
        if user.password != known:
            raise wrong
        user.password = hashed
        _save_password(user, Action.PASSWORD_CHANGED)
    return user


def set_password(user: User, password: str | None) -> None:
    """Set a password without asking for the old one; None removes it. The caller must have verified the person."""
    user.set_password(password)
    with transaction.atomic():
        _save_password(user, Action.PASSWORD_REMOVED if password is None else Action.PASSWORD_RESET)


def _save_password(user: User, action: Action) -> None:
    """Save and record the password. Web sessions check its hash themselves; the hooks end other sessions."""
    user.save(update_fields=["password"])
    audit.services.record(action, actor=user)
    for follow in on_password_changed:
        follow(user)


def hand_over(user: User, password: str | None) -> None:
    """Give an account with an unconfirmed address to the verified owner of that address. Raises AddressTaken.

    Someone else may have signed up with it: their password and sessions become invalid.
    """
    user.set_password(password)  # before the lock: hashing may have to wait
    with transaction.atomic():
        if is_verified(User.objects.select_for_update(of=["self"]).get(pk=user.pk)):
            raise AddressTaken
        _save_password(user, Action.PASSWORD_REMOVED if password is None else Action.PASSWORD_RESET)
        set_address(user)


def addresses_of(user: User) -> list[str]:
    """Return the account's e-mail address and the former ones in the audit log."""
    return [user.email, *audit.services.former_addresses(user.pk)]


def change_plan(ids: Collection[int], plan: Plan) -> BulkResult[User]:
    """Change the plan of accounts. Monitors beyond its limit stay; intervals below its minimum are raised.

    Locks the rows, as creating a monitor locks its owner's row, so that it sees either the old or the new plan.
    """
    with transaction.atomic():
        users = User.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
        changed = [user for user in users if user.plan_id != plan.pk]
        User.objects.filter(pk__in=[user.pk for user in changed]).update(plan=plan)
        audit.services.record_all(
            audit.services.draft(Action.PLAN_CHANGED, **target(user), details={"plan": plan.name}) for user in changed
        )
        for user in changed:
            user.plan = plan
        for follow in on_plan_changed:
            follow(changed, plan)
    there = len(users) - len(changed)
    return BulkResult(changed, {f"already on plan {plan}": there} if there else {})


def record_changes(before: User, after: User, *, rights: Sequence[str]) -> None:
    """Record changes by staff in an account's form: of its address, and of the fields `rights`."""
    if before.email != after.email:
        record_address(AddressChange(after, before.email, clicked=False))
    if rights:
        details = {"fields": list(rights), "is_active": after.is_active, "is_staff": after.is_staff}
        audit.services.record(Action.ACCOUNT_UPDATED, **target(after), details=details)
    if before.is_active and not after.is_active:
        for follow in on_account_deactivated:
            follow(after)


def follow_staff_group(user: User, *, granted: bool) -> None:
    """Make the account staff, or end that if it came from a group earlier. Staff made by hand are not changed."""
    with transaction.atomic():
        row = User.objects.select_for_update(no_key=True, of=["self"]).get(pk=user.pk)
        if granted == row.staff_from_groups or (granted and row.is_staff):
            return
        row.is_staff = row.is_superuser = row.staff_from_groups = granted
        row.save(update_fields=["is_staff", "is_superuser", "staff_from_groups"])
        details = {"fields": ["is_staff", "is_superuser"], "is_active": row.is_active, "is_staff": row.is_staff}
        audit.services.record(Action.ACCOUNT_UPDATED, **target(row), details=details | {"by": "groups"})
    user.is_staff, user.is_superuser, user.staff_from_groups = row.is_staff, row.is_superuser, row.staff_from_groups


def record_address(change: AddressChange) -> None:
    """Record a change of address and call the hooks of higher layers."""
    user = change.user
    details = {"before": change.before, "after": user.email}
    audit.services.record(Action.EMAIL_CHANGED, **target(user), details=details)
    for follow in on_address_changed:
        follow(change)


def delete_account(user: User) -> None:
    """Delete the account and everything it owns. Hooks of higher layers may raise an ApiError; then nothing changes.

    The rows that may be many go first, in transactions of a bounded number of them. From the first one on, the account
    is not active: no one can sign in, and it gets no alerts. If the process dies, `finish_deletions` continues.
    """
    with transaction.atomic():
        user = User.objects.select_for_update(of=["self"]).get(pk=user.pk)
        for may_refuse in on_deletion_requested:
            may_refuse(user)
        User.objects.filter(pk=user.pk).update(is_active=False, deletion_began_at=Now())
    _delete_rows(user)


def finish_deletions(now: datetime) -> int:
    """Continue the deletions of accounts whose process has died. Return how many succeeded; the others are logged."""
    done = 0
    for user in User.objects.filter(deletion_began_at__lt=now - DELETION_PATIENCE).order_by("pk"):
        try:
            _delete_rows(user)
        except Exception:  # one that fails each time must not keep the others
            logger.exception("The deletion of the account %s failed.", user.public_id)
        else:
            done += 1
    return done


def _delete_rows(user: User) -> None:
    """Delete the account in steps. Two processes can do that at once."""
    for delete_some in delete_some_rows:
        while delete_some(user):
            pass
    with transaction.atomic():
        # Also waits for a concurrent transaction that creates a monitor of this account.
        locked = User.objects.select_for_update(of=["self"]).filter(pk=user.pk).first()
        if locked is None:
            return
        for take_away in before_account_deleted:
            take_away(locked)
        addresses = addresses_of(locked)
        _forget_in_admin(addresses)
        audit.services.forget_person(locked, addresses=addresses)
        locked.delete()


def _forget_in_admin(addresses: Sequence[str]) -> None:
    """Anonymize entries of the admin's history that name the addresses: they still show that staff acted."""
    for address in addresses:
        # Match whole addresses only, not longer ones that end with this one.
        whole = rf"(^|[^[:alnum:]._%+-]){re.escape(address)}($|[^[:alnum:].-])"
        named = Q(object_repr__iregex=whole) | Q(change_message__iregex=whole)
        LogEntry.objects.filter(named).update(object_repr=GONE, change_message="")


def _require_strong(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationFailed(" ".join(error.messages), field="password") from None


def is_verified(user: User) -> bool:
    return bool(EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists())


def set_address(user: User) -> None:
    """Make `user.email` the account's only address, and verified. Call it in the transaction that saves the user."""
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=user.email, primary=True, verified=True)


def verified_account(email: str) -> User | None:
    """Return the account with this verified address, which must be in lower case, or None."""
    return User.objects.filter(email=email, emailaddress__email=email, emailaddress__verified=True).first()
