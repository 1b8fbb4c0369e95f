"""Read the audit log. Who may, is for the floors above: `projects.log`."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from audit.actions import Action
from audit.models import Entry


def of_person(key: int) -> QuerySet[Entry]:
    """What he did, and what was done to his account."""
    return Entry.objects.filter(Q(actor_id=key) | Q(subject_id=key))


def of_project(key: int) -> QuerySet[Entry]:
    return Entry.objects.filter(project_id=key)


def former_addresses(key: int) -> list[str]:
    """E-mail addresses that the account had, as far back as the log goes."""
    changes = of_person(key).filter(action=Action.EMAIL_CHANGED)
    return list(changes.values_list("details__before", flat=True))
