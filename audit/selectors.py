"""Reading the audit log. Who may, is for the floors above: `projects.log`."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from audit.models import Entry


def of_person(key: int) -> QuerySet[Entry]:
    """What he did, and what was done to his account."""
    return Entry.objects.filter(Q(actor_id=key) | Q(subject_id=key))


def of_project(key: int) -> QuerySet[Entry]:
    return Entry.objects.filter(project_id=key)
