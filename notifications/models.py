"""The columns that the outbox needs of a message."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q


class Notification(models.Model):
    """A message that is sent at least once, and marked afterwards.

    While `gathering`, it waits for more items until `next_try_at`. While `waiting`, it waits for `next_try_at`, or for
    the end of the lease of a sender that may have died. `failed` is for messages that are attempted only once.
    """

    class State(models.TextChoices):
        GATHERING = "gathering"
        WAITING = "waiting"
        SENT = "sent"
        DEAD = "dead"
        FAILED = "failed"

    state = models.CharField(max_length=9, choices=State.choices, default=State.WAITING)
    next_try_at = models.DateTimeField()
    leased_until = models.DateTimeField(null=True)
    give_up_at = models.DateTimeField()
    attempts = models.IntegerField(default=0)
    last_error = models.TextField(null=True)
    done_at = models.DateTimeField(null=True, help_text="When it was sent, or given up.")

    class Meta:
        abstract = True
        indexes: ClassVar = [
            models.Index(
                fields=["next_try_at"], name="%(class)s_open", condition=Q(state__in=["gathering", "waiting"])
            ),
            models.Index(fields=["id"], name="%(class)s_dead", condition=Q(state="dead")),
        ]
