"""Projects group monitors and share them between people."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from core import ids
from core.crypto import EncryptedField


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Project(models.Model):
    public_id = models.CharField(max_length=40, unique=True, default=ids.project_id, editable=False)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    escalation_policy = models.ForeignKey(
        "oncall.EscalationPolicy",
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Of monitors without one of their own.",
    )

    def __str__(self) -> str:
        return self.name

    @property
    def tagged_settings(self) -> Any:
        return [self.name, self.escalation_policy_id]


class Membership(models.Model):
    """A member of a project, or an open invitation, which has no `user` yet.

    One table for both, so that an invitation keeps its id and role when it is accepted, and one list has both. An
    invitation grants nothing.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.member_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices)
    from_groups = models.BooleanField(
        default=False, db_default=False, help_text="Follows OIDC_PROJECT_ROLES at every sign-in of the member."
    )
    created_at = models.DateTimeField(db_default=Now())

    invited_email = models.EmailField(null=True, db_index=True, help_text="In lower case.")
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    invitation_digest = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    invited_until = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership_per_user"),
            models.UniqueConstraint(fields=["project"], condition=models.Q(role="owner"), name="one_owner_per_project"),
            models.UniqueConstraint(fields=["project", "invited_email"], name="one_invitation_per_address"),
            models.CheckConstraint(
                name="member_or_invitation",
                condition=models.Q(
                    user__isnull=False,
                    invited_email__isnull=True,
                    invitation_digest__isnull=True,
                    invited_until__isnull=True,
                )
                | models.Q(
                    user__isnull=True,
                    invited_email__isnull=False,
                    invitation_digest__isnull=False,
                    invited_until__isnull=False,
                    role__in=["admin", "member", "viewer"],
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id or 'an invited person'} is {self.role} of {self.project_id}"

    @property
    def is_open(self) -> bool:
        """Return whether this is an invitation that was not accepted yet."""
        return self.user_id is None

    @property
    def email(self) -> str:
        return self.invited_email or "" if self.user is None else self.user.email


class IdempotencyKey(models.Model):
    """The key of a request that created something, so that a retry within a day creates nothing more.

    It is written in the object's transaction. `caller` is `Caller.key` and no foreign key: rows expire after a day.
    """

    caller = models.CharField(max_length=50)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(max_length=32, help_text="Keyed digest of method, address and body.")
    created_at = models.DateTimeField(db_index=True)
    object_id = models.CharField(max_length=40, default="", db_default="")
    answer = EncryptedField(null=True, help_text="Empty if the object is read again.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["caller", "key"], name="one_use_of_an_idempotency_key")
        ]

    def __str__(self) -> str:
        return f"{self.caller}: {self.object_id}"
