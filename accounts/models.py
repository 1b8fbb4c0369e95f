"""User accounts and their plans."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models.functions import Lower

from core import ids


class Plan(models.Model):
    """The limits of an account. Staff edit the rows.

    Migrations create three: `free`, which new accounts get, `pro`, and `local`, which the first account of `manage.py
    up` gets.
    """

    LOCAL = "local"
    BUILT_IN = ("free", "pro", LOCAL)

    name = models.SlugField(unique=True)
    min_interval_sec = models.PositiveIntegerField(
        validators=[MinValueValidator(1)], help_text="Seconds; shorter intervals of monitors are raised to it."
    )
    default_interval_sec = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Seconds; the interval of monitors that name none. Empty: the shortest.",
    )
    monitor_limit = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many monitors an account may own. Empty: no limit."
    )
    location_limit = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many private locations an account may own. Empty: no limit."
    )

    class Meta:
        ordering: ClassVar = ["pk"]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def is_mentioned(cls) -> bool:
        """Return whether pages mention plans: only if staff created one, or an account uses one other than `local`."""
        used = models.Exists(User.objects.filter(plan=models.OuterRef("pk")))
        others = cls.objects.exclude(name=cls.LOCAL)
        return others.filter(~models.Q(name__in=cls.BUILT_IN) | used).exists()


class UserManager(BaseUserManager["User"]):
    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").lower())


class User(AbstractBaseUser, PermissionsMixin):
    public_id = models.CharField(max_length=40, unique=True, default=ids.user_id, editable=False)
    email = models.EmailField(unique=True, help_text="Kept in lower case; it is the login name.")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    staff_from_groups = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Staff as long as in a group of OIDC_STAFF_GROUPS."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    deletion_began_at = models.DateTimeField(
        null=True, editable=False, help_text="Since when the account and its rows are being deleted."
    )

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    objects = UserManager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="user_email_is_lower_case")
        ]

    def __str__(self) -> str:
        return self.email
