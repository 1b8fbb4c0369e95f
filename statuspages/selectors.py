"""Read status pages: for editors, limited by `projects.access`, and for the public."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet, Value
from django.db.models.functions import Length, Lower

from core.db import get_or_not_found, total_of
from core.errors import NotFound
from monitors.filters import with_any_tag
from monitors.models import Monitor
from monitors.selectors import get_monitor
from monitors.stale import STALE_COLUMNS, load_schedules
from projects import access
from projects.access import Caller
from projects.models import Membership
from statuspages.models import Badge, NoteUpdate, PageGroup, PageMonitor, PageNote, StatusPage, Subscriber

MAX_MONITORS = 1_000
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


_SHOWN = (
    "page",
    "group",
    "name",
    "monitor__public_id",
    "monitor__type",
    "monitor__name",
    "monitor__owner",
    "monitor__project",
)


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
    """Return the monitors of the public page in its order, with groups and states loaded.

    In each group, those that its tags select follow the named ones, by name. They are not stored as PageMonitor. A
    monitor is shown once, and at most MAX_MONITORS are.
    """
    items = list(
        showable()
        .filter(page=page)
        .select_related("monitor", "monitor__state")
        .prefetch_related("group")  # few rows; a join would repeat them for each monitor
        .only("name", "group", *(f"monitor__{name}" for name in _READ))
        .order_by("pk")
    )
    groups = list(PageGroup.objects.filter(page=page, monitor_tag_keys__isnull=False).order_by("pk"))
    if groups:
        items = _with_tagged(page, items, groups)
    load_schedules([item.monitor for item in items])
    return items


_READ = (
    *("public_id", "name", "owner", "project", "locations", "tag_keys", *STALE_COLUMNS),
    *("state__armed_at", "state__status", "state__status_since", "state__failing_since"),
)


def _with_tagged(page: StatusPage, items: Sequence[PageMonitor], groups: Sequence[PageGroup]) -> list[PageMonitor]:
    keys = {key for group in groups for key in group.monitor_tag_keys}
    room = max(0, MAX_MONITORS - len(items))
    monitors = Monitor.objects.filter(with_any_tag(keys), of_page(page)).select_related("state").only(*_READ)
    named = {item.monitor_id for item in items}
    left = list(monitors.exclude(pk__in=named).order_by(Lower("name"), "pk")[:room])
    found = list(items)
    for group in groups:
        mine = set(group.monitor_tag_keys)
        taken = [monitor for monitor in left if not mine.isdisjoint(monitor.tag_keys)]
        left = [monitor for monitor in left if mine.isdisjoint(monitor.tag_keys)]
        found += [
            PageMonitor(pk=-monitor.pk, page=page, group=group, monitor=monitor, name=monitor.name) for monitor in taken
        ]
    return sorted(found, key=lambda item: item.group_id)


def of_page(page: StatusPage) -> Q:
    """Match the monitors among which the page's tags select: of its project, or else of its owner.

    Not those of other accounts in projects that its owner is a member of: anyone may add a person to a project, and
    must not choose what the person's page shows.
    """
    return Q(owner=page.owner_id) if page.project_id is None else Q(project=page.project_id)


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
