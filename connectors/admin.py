from __future__ import annotations

from django.contrib import admin

from connectors.models import Connector, Import
from core.staff import AutocompleteFilter, ReadOnlyAdmin


@admin.register(Connector)
class ConnectorAdmin(ReadOnlyAdmin[Connector]):
    """Tokens are not shown."""

    list_display = ("user", "provider", "meta", "created_at", "revoked_at")
    list_filter = ("provider", ("revoked_at", admin.EmptyFieldListFilter), ("user", AutocompleteFilter))
    list_select_related = ("user",)
    search_fields = ("user__email", "meta__icontains")
    fields = list_display


@admin.register(Import)
class ImportAdmin(ReadOnlyAdmin[Import]):
    list_display = ("external_ref", "provider", "user", "monitor")
    list_filter = ("provider", ("user", AutocompleteFilter))
    list_select_related = ("user", "monitor")
    search_fields = ("external_ref", "user__email", "monitor__name__icontains")
    fields = list_display
