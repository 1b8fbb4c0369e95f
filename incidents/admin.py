from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from monitors.admin import ReadOnlyAdmin


class ReadOnlyInline(admin.TabularInline[Any, Any]):
    """Rows below the one they belong to, for looking."""

    extra = 0
    ordering = ("pk",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OpenFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "open"), ("resolved", "resolved")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Incident]) -> QuerySet[Incident]:
        wanted = self.value()
        return queryset if wanted is None else queryset.filter(resolved_at__isnull=wanted == "open")


class EventInline(ReadOnlyInline):
    model = IncidentEvent
    fields = ("at", "type", "text", "data")


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin[Incident]):
    list_display = (
        "public_id",
        "name",
        "owner",
        "project",
        "reason_code",
        "started_at",
        "acknowledged_at",
        "resolved_at",
        "resolution",
        "quiet",
    )
    list_filter = (OpenFilter, "resolution", "quiet", "reason_code")
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "monitor_public_id", "name", "owner__email")
    ordering = ("-pk",)
    inlines = (EventInline,)


@admin.register(MaintenanceWindow)
class MaintenanceWindowAdmin(ReadOnlyAdmin[MaintenanceWindow]):
    list_display = (
        "public_id",
        "name",
        "owner",
        "project",
        "time_zone",
        "rrule",
        "current_starts_at",
        "current_ends_at",
    )
    list_filter = ("all_monitors",)
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name", "owner__email")
    ordering = ("-pk",)
