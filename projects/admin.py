from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.http import HttpRequest

from core.staff import AutocompleteFilter, ReadOnlyAdmin, Section, list_of
from projects.models import Membership, Project

MOST_PLACES = 50


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin[Project]):
    list_display = ("public_id", "name", "created_at")
    search_fields = ("public_id", "name__icontains", "memberships__user__email")
    fields = list_display

    def sections(self, request: HttpRequest, row: Project) -> Sequence[Section]:
        places = row.memberships.select_related("user").order_by("pk")[:MOST_PLACES]
        return (
            Section(
                "People",
                ("Address", "Role", "Since", "Invited until"),
                [(place.email, place.role, place.created_at, place.invited_until) for place in places],
                more=list_of(Membership, project__id__exact=row.pk),
            ),
        )


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin[Membership]):
    """Memberships and open invitations; never the token of an invitation's link."""

    list_display = ("public_id", "project", "user", "role", "created_at", "invited_email", "invited_until")
    list_filter = ("role", ("project", AutocompleteFilter), ("user", AutocompleteFilter))
    list_select_related = ("project", "user")
    search_fields = ("public_id", "user__email", "invited_email", "project__public_id")
    fields = (*list_display, "from_groups", "invited_by")
