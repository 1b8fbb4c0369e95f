"""Projects group monitors and share them between people."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from core import ids


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Project(models.Model):
    public_id = models.CharField(max_length=40, unique=True, default=ids.project_id, editable=False)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership_per_user"),
            models.UniqueConstraint(
                fields=["project"], condition=models.Q(role="owner"), name="one_owner_per_project"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.project_id}"
