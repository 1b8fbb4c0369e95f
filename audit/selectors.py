"""Read the audit log. Higher apps check permissions: `projects.log`."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from audit.actions import Action
from audit.models import Entry


def of_person(key: int) -> QuerySet[Entry]:
    """Return the person's actions, and the actions on their account."""
    return Entry.objects.filter(Q(actor_id=key) | Q(subject_id=key))


def of_project(key: int) -> QuerySet[Entry]:
    return Entry.objects.filter(project_id=key)


def former_addresses(key: int) -> list[str]:
    """Return the former e-mail addresses of the account, as far back as the log goes."""
    changes = of_person(key).filter(action=Action.EMAIL_CHANGED)
    return list(changes.values_list("details__before", flat=True))
