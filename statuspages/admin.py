from __future__ import annotations

from django.contrib import admin

from monitors.admin import ReadOnlyAdmin
from statuspages.models import StatusPage


@admin.register(StatusPage)
class StatusPageAdmin(ReadOnlyAdmin[StatusPage]):
    """Who has which slug and domain."""

    list_display = (
        "public_id",
        "name",
        "slug",
        "custom_domain",
        "owner",
        "project",
        "published",
        "created_at",
    )
    list_filter = ("published",)
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "slug", "custom_domain", "owner__email")
    fields = (*list_display, "description", "theme", "accent", "show_window_names")
