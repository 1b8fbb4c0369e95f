"""Linked provider accounts (Connector), and the projects imported from them."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from django.conf import settings
from django.db import models

from core.crypto import EncryptedField
from monitors.models import Monitor


class Connector(models.Model):
    """One person's link to one provider. `provider` is the name of the backend, not the word of the paths.

    `tokens`: {"access_token", "refresh_token", "expires_at", "team_id", …}, never shown. `tokens_version` changes with
    each write of the tokens, because encrypted values cannot be compared.
    `revoked_at`: the provider refuses the grant; it has to be linked again. `renewing_until`: the lease of the request
    that renews the tokens; linking again clears it, and its result is dropped.
    `undo_digest`: of the secret that undoes this link until `undo_until` (docs/adr/0020).
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="connectors")
    provider = models.CharField(max_length=20)
    created_at = models.DateTimeField()
    meta = models.CharField(max_length=200, null=True, help_text="The name of the account at the provider.")
    tokens = EncryptedField()
    tokens_version = models.UUIDField(default=uuid4, editable=False)
    revoked_at = models.DateTimeField(null=True)
    renewing_until = models.DateTimeField(null=True, editable=False)
    undo_digest = models.BinaryField(max_length=32, null=True)
    undo_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "provider"], name="one_connector_per_user_and_provider")
        ]

    def __str__(self) -> str:
        return f"{self.provider} of {self.user_id}"


class OAuthState(models.Model):
    """An OAuth flow in progress: the `state` identifies its user once, within 10 minutes.

    Found by its digest. `session` is what social-auth would keep in a browser's session: the PKCE verifier.
    """

    digest = models.BinaryField(max_length=32, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    provider = models.CharField(max_length=20)
    expires_at = models.DateTimeField(db_index=True)
    session = EncryptedField()

    def __str__(self) -> str:
        return f"{self.provider} for {self.user_id}"


class Import(models.Model):
    """A project of the provider's that is a monitor now. Gone with the monitor, so that it can be imported again."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    provider = models.CharField(max_length=20)
    external_ref = models.CharField(max_length=200)
    monitor = models.OneToOneField(Monitor, on_delete=models.CASCADE, related_name="imported_as")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "provider", "external_ref"], name="one_monitor_per_external_ref")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.external_ref}"
