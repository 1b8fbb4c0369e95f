from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from monitors.models import Monitor


@admin.register(Monitor)
class MonitorAdmin(admin.ModelAdmin[Monitor]):
    """For looking, not for changing: a monitor changes through its services, which know what follows."""

    list_display = ("public_id", "name", "type", "url", "owner", "enabled")
    list_filter = ("type", "enabled")
    list_select_related = ("owner",)
    search_fields = ("public_id", "name", "owner__email")
    exclude = ("request_body",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Monitor | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Monitor | None = None) -> bool:
        return False
