"""API credentials. Only a lookup key and a keyed digest are stored; the plaintext is shown once."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from core import ids
from projects.models import Project


class Credential(models.Model):
    lookup = models.CharField(max_length=20, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class Session(Credential):
    """A sign-in to the API, valid for 14 days."""

    public_id = models.CharField(max_length=40, unique=True, default=ids.session_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_sessions")
    password_hash = models.CharField(
        max_length=64, help_text="Digest of the password it was opened with: another password ends it."
    )

    def __str__(self) -> str:
        return f"session {self.public_id}"


class ProjectToken(Credential):
    """A token that reads, and with WRITE also writes, one project's resources, on behalf of its creator."""

    class Access(models.TextChoices):
        WRITE = "write"
        READ = "read"

    public_id = models.CharField(max_length=40, unique=True, default=ids.token_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tokens")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=200, null=True)
    access = models.CharField(max_length=5, choices=Access.choices, default=Access.WRITE, db_default=Access.WRITE)

    def __str__(self) -> str:
        return f"token {self.name} ({self.public_id})"
