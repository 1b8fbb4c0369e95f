"""Uploaded exports of other products, while they are previewed, imported and undone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core import ids
from core.crypto import EncryptedField

LIFETIME = timedelta(hours=1)
"""Of a preview, and of the right to undo an import."""


class Upload(models.Model):
    """An export that a person uploaded: first a preview, then perhaps an import, which may be undone.

    `place` is the argument of `import_monitors`. `content` is encrypted, because exports contain passwords, and is
    replaced by each step: `monitors` and `channels` of the file; then the `outcomes` of the import, the tags of the
    `monitors` and `projects` that it created, by primary key, those of its `channels`, by public id, and the ids of
    channels that it `extended`; then the number of `removed` monitors, and what was `kept`, and why.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.import_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    source = models.CharField(max_length=20)
    place = models.JSONField()
    content = EncryptedField()
    created_at = models.DateTimeField(db_index=True)
    imported_at = models.DateTimeField(null=True)
    undone_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user"], condition=Q(imported_at=None), name="one_preview_per_user")
        ]

    def __str__(self) -> str:
        return f"{self.source} of {self.user_id}"

    @staticmethod
    def expired(now: datetime) -> Q:
        before = now - LIFETIME
        return Q(imported_at=None, created_at__lte=before) | Q(imported_at__lte=before)
