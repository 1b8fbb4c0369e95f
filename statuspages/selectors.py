"""Read status pages: for editors, limited by `projects.access`, and for the public."""

from __future__ import annotations

from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet, Value
from django.db.models.functions import Length

from core.db import get_or_not_found, total_of
from core.errors import NotFound
from monitors.selectors import get_monitor
from monitors.stale import STALE_COLUMNS, load_schedules
from projects import access
from projects.access import Caller
from projects.models import Membership
from statuspages.models import Badge, NoteUpdate, PageGroup, PageMonitor, PageNote, StatusPage, Subscriber

PAGE_BYTES = total_of(PageMonitor.objects.all(), "page", Value(2_000)) + Length("description")
NOTE_CHARS = total_of(NoteUpdate.objects.all(), "note", Length("text"))
"""Memory of the monitors of a page, and of the updates of a note, while a list is created."""


def list_pages(caller: Caller) -> QuerySet[StatusPage]:
    """Return the pages with their groups and the monitors that may be shown."""
    groups = PageGroup.objects.order_by("pk").prefetch_related(
        Prefetch("monitors", showable().select_related("monitor").only(*_SHOWN).order_by("pk"))
    )
    pages = StatusPage.objects.select_related("project", "logo").defer("logo__image")
    return access.accessible(caller, pages).prefetch_related(Prefetch("groups", groups))


_SHOWN = ("page", "group", "name", "monitor__public_id", "monitor__name", "monitor__owner", "monitor__project")


def get_page(caller: Caller, public_id: str) -> StatusPage:
    return get_or_not_found(list_pages(caller), public_id=public_id)


def showable() -> QuerySet[PageMonitor]:
    """Return the monitors that may be shown on their pages now.

    A project's page shows its project's monitors. A user's page shows monitors that the user owns, or whose project
    the user is a member of. A monitor that moved elsewhere is hidden until it moves back.
    """
    published = Membership.objects.filter(user=OuterRef("page__owner"), project=OuterRef("monitor__project"))
    return PageMonitor.objects.filter(
        Q(page__project__isnull=False, monitor__project=F("page__project"))
        | Q(page__project=None, monitor__owner=F("page__owner"))
        | Q(Exists(published), page__project=None)
    )


def shown_monitors(page: StatusPage) -> list[PageMonitor]:
    """Return the monitors of the public page in its order, with groups and states loaded."""
    items = list(
        showable()
        .filter(page=page)
        .select_related("monitor", "monitor__state")
        .prefetch_related("group")  # few rows; a join would repeat them for each monitor
        .only(
            "name",
            "group",
            "monitor__public_id",
            "monitor__owner",
            "monitor__project",
            "monitor__locations",
            "monitor__tag_keys",
            *(f"monitor__{name}" for name in STALE_COLUMNS),
            "monitor__state__armed_at",
            "monitor__state__status",
            "monitor__state__status_since",
            "monitor__state__failing_since",
        )
        .order_by("pk")
    )
    load_schedules([item.monitor for item in items])
    return items


def list_notes(page: StatusPage) -> QuerySet[PageNote]:
    updates = Prefetch("updates", NoteUpdate.objects.order_by("pk"))
    return PageNote.objects.filter(page=page).select_related("incident").prefetch_related(updates)


def get_note(page: StatusPage, public_id: str) -> PageNote:
    return get_or_not_found(list_notes(page), public_id=public_id)


def list_subscribers(page: StatusPage) -> QuerySet[Subscriber]:
    """Return the confirmed subscribers."""
    return Subscriber.objects.filter(page=page, confirmed_at__isnull=False)


def get_badge(caller: Caller, monitor_id: str) -> Badge:
    """Return the monitor's badge. Raises NotFound if there is none."""
    badge = Badge.objects.filter(monitor=get_monitor(caller, monitor_id)).first()
    if badge is None:
        raise NotFound("The monitor has no badges; create them with PUT.")
    return badge
