from __future__ import annotations

from typing import TypeVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from monitors.models import DomainRegistration, Monitor

M = TypeVar("M", bound=Model)


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """For looking, not for changing: a row changes through its services, which know what follows."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


@admin.register(Monitor)
class MonitorAdmin(ReadOnlyAdmin[Monitor]):
    list_display = ("public_id", "name", "type", "url", "owner", "enabled")
    list_filter = ("type", "enabled")
    list_select_related = ("owner",)
    search_fields = ("public_id", "name", "owner__email")
    exclude = ("request_body",)


@admin.register(DomainRegistration)
class DomainRegistrationAdmin(ReadOnlyAdmin[DomainRegistration]):
    list_display = ("name", "expires_at", "looked_up_at", "next_lookup_at", "failures", "error")
    search_fields = ("name",)
