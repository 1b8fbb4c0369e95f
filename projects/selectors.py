"""Read projects."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet

from projects import access
from projects.access import Caller
from projects.models import Project


def list_projects(caller: Caller) -> QuerySet[Project]:
    """Return the caller's projects, annotated with the number of their monitors, total and by status.

    Counts over the reverse relations of higher layers, without importing them.
    """
    caller.require_session()

    def count(status: str | None) -> Count:
        condition = Q(monitors__state__status=status) if status else Q(monitors__state__status__isnull=True)
        return Count("monitors", filter=condition & Q(monitors__isnull=False))

    return access.accessible_projects(caller).annotate(
        monitor_count=Count("monitors"),
        up=count("up"),
        slow=count("slow"),
        down=count("down"),
        unknown=count(None),
    )
