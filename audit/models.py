"""Security-relevant actions: actor, action and origin. One row each, written once and never changed.

No foreign keys: an entry outlives its objects. `audit.services.forget_person` removes the personal data of deleted
accounts.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from core import ids

MAX_USER_AGENT = 200
MAX_NAME = 254  # of an e-mail address, which must be searchable


class Entry(models.Model):
    """An action of `actor`. `subject` is the affected account, if it is another one or the actor is unknown.

    A person's log has their own actions and those on their account; a project's log has the entries of the project.
    """

    class ActorType(models.TextChoices):
        USER = "user"  # a signed-in person
        TOKEN = "token"  # noqa: S105  (a project token; the actor is who made it)
        STAFF = "staff"  # in the admin
        OPERATOR = "operator"  # by a command on the server; the actor is the account that it acted for, if any
        ANONYMOUS = "anonymous"

    # Without an index: it identifies copies of an entry elsewhere, and is never used for a lookup.
    public_id = models.CharField(max_length=40, default=ids.audit_entry_id, editable=False)
    at = models.DateTimeField()
    action = models.CharField(max_length=30)  # an `audit.actions.Action`
    actor_type = models.CharField(max_length=9, choices=ActorType.choices)
    actor_id = models.BigIntegerField(null=True)
    actor_public_id = models.CharField(max_length=40, default="")
    actor_email = models.CharField(max_length=254, default="", help_text="As it was then.")
    subject_id = models.BigIntegerField(null=True)
    project_id = models.BigIntegerField(null=True)
    project_public_id = models.CharField(max_length=40, default="")
    # Of a change that the monitor's page shows. Ids are not enough: that of a heartbeat is a secret.
    monitor_id = models.BigIntegerField(null=True)
    target_id = models.CharField(max_length=40, default="", help_text="Public id of what it was done to.")
    target_name = models.CharField(max_length=MAX_NAME, default="", help_text="As it was then.")
    address = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=MAX_USER_AGENT, default="")
    details: Any = models.JSONField(default=dict, help_text="A few words more; never a secret.")

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        # Lists are read newest first, so the id ends every index.
        indexes: ClassVar = [
            models.Index(fields=["actor_id", "id"], name="audit_actor", condition=Q(actor_id__isnull=False)),
            models.Index(fields=["subject_id", "id"], name="audit_subject", condition=Q(subject_id__isnull=False)),
            models.Index(fields=["project_id", "id"], name="audit_project", condition=Q(project_id__isnull=False)),
            models.Index(fields=["monitor_id", "id"], name="audit_monitor", condition=Q(monitor_id__isnull=False)),
            models.Index(fields=["action", "id"], name="audit_action"),
            models.Index(fields=["actor_type", "id"], name="audit_actor_type"),
            models.Index(fields=["address", "id"], name="audit_address"),
            models.Index(fields=["actor_email", "id"], name="audit_actor_email"),
            models.Index(fields=["target_name", "id"], name="audit_target_name"),
            models.Index(fields=["at"], name="audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} at {self.at}"
