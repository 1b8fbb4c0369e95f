from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from core.staff import AutocompleteFilter, ReadOnlyAdmin, Section, list_of
from statuspages.models import PageEvent, PageMail, PageMonitor, PageNote, StatusPage, Subscriber

MOST_ROWS = 50


@admin.register(StatusPage)
class StatusPageAdmin(ReadOnlyAdmin[StatusPage]):
    """Status pages with their slugs and domains."""

    list_display = ("public_id", "name", "slug", "custom_domain", "owner", "project", "published", "created_at")
    list_filter = ("published", ("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "slug", "custom_domain", "name__icontains", "owner__email")
    fields = (
        *list_display,
        "domain_verified_at",
        "has_password",
        "description",
        "theme",
        "accent",
        "show_window_names",
        "show_locations",
    )

    @admin.display(boolean=True, description="has a password")
    def has_password(self, page: StatusPage) -> bool:
        return page.is_protected

    def sections(self, request: HttpRequest, row: StatusPage) -> Sequence[Section]:
        monitors = PageMonitor.objects.filter(page=row).order_by("pk")
        notes = row.notes.order_by("-created_at")[:MOST_ROWS]
        return (
            Section(
                "Shown monitors",
                ("Public name", "Group", "Monitor"),
                list(monitors.values_list("name", "group__name", "monitor__name")[:MOST_ROWS]),
            ),
            Section(
                "Notes",
                ("At", "Title", "Resolved"),
                [(note.created_at, note.title, note.resolved_at) for note in notes],
                more=list_of(PageNote, page__id__exact=row.pk),
            ),
        )


@admin.register(PageNote)
class PageNoteAdmin(ReadOnlyAdmin[PageNote]):
    list_display = ("public_id", "title", "page", "created_at", "resolved_at")
    list_filter = (("resolved_at", admin.EmptyFieldListFilter), ("page", AutocompleteFilter))
    list_select_related = ("page",)
    search_fields = ("public_id", "title__icontains", "page__slug")
    fields = (*list_display, "incident")

    def sections(self, request: HttpRequest, row: PageNote) -> Sequence[Section]:
        updates = row.updates.order_by("-pk")[:MOST_ROWS]
        return (Section("Updates", ("At", "Status", "Text"), [(each.at, each.status, each.text) for each in updates]),)


@admin.register(Subscriber)
class SubscriberAdmin(ReadOnlyAdmin[Subscriber]):
    """Subscribers, identified by `hint` because their addresses are secret."""

    list_display = ("public_id", "hint", "page", "created_at", "confirmed_at")
    list_filter = (("confirmed_at", admin.EmptyFieldListFilter), ("page", AutocompleteFilter))
    list_select_related = ("page",)
    search_fields = ("public_id", "page__slug")
    fields = list_display


@admin.register(PageEvent)
class PageEventAdmin(ReadOnlyAdmin[PageEvent]):
    list_display = ("at", "page", "kind", "title", "addressed_at", "ended")
    list_filter = ("kind", ("page", AutocompleteFilter))
    list_select_related = ("page",)
    search_fields = ("page__slug",)
    fields = (*list_display, "text", "incident")


@admin.register(PageMail)
class PageMailAdmin(ReadOnlyAdmin[PageMail]):
    list_display = ("pk", "subscriber", "event", "state", "next_try_at", "attempts", "last_error")
    list_filter = ("state",)
    list_select_related = ("subscriber", "event")
    search_fields = ("subscriber__public_id",)
    fields = (*list_display[1:], "leased_until")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PageMail]:
        return super().get_queryset(request).defer("subscriber__address", "subscriber__address_digest")
